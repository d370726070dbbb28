"""Sans-IO: detection of answers that announce an action without calling a tool.

Some models write "I'll now read the file:" and stop without making the call. The user waits for an
action that never happens. Such a text is short, ends with the announcement, asks no question and
does not depend on the user or on a later time. Doubtful texts count as ordinary answers: an
unnecessary extra request is worse than an announcement that the user has to follow up.
"""

import functools
import re

_MAX_LENGTH = 300  # characters of the whole text
_MAX_REMARK_LENGTH = 160  # characters before the announcement

_QUESTION = re.compile(r"[?？؟]")  # noqa: RUF001 - Chinese punctuation
_STRUCTURED_CONTENT = re.compile(r"```|~~~|^\s*(?:[-+•|>]|\d+[.)]\s|\*\s)", re.MULTILINE)
_EMPHASIS_MARKS = re.compile(r"[*_`]+")
_SENTENCE = re.compile(r"(?<=[.!:…])\s+|(?<=[。！：])|\n+")  # noqa: RUF001


@functools.cache
def _compile_any(patterns: tuple[str, ...]) -> re.Pattern[str]:
    # Compiled on first use: compiling takes longer than importing most modules of this project.
    return re.compile("|".join(f"(?:{each})" for each in patterns), re.IGNORECASE)


# --- English -------------------------------------------------------------------------------------

_EN_DO = (
    r"(?:read|check|look|search|find|open|run|list|fetch|get|grab|pull|load|query|use|invoke|"
    r"write|create|edit|update|fix|delete|remove|move|rename|save|download|install|test|verify|"
    r"inspect|examine|explore|review|scan|retrieve|gather|execute|view|browse|dig|investigate|"
    r"analy[sz]e|calculate|compute|call(?! you\b)|make(?! sure\b)|add(?! that\b))"
)
_EN_DOING = (
    "(?:reading|checking|looking|searching|opening|running|listing|fetching|getting|loading|"
    "querying|calling|writing|creating|editing|updating|downloading|testing|verifying|inspecting|"
    "examining|exploring|reviewing|scanning|retrieving|gathering|executing|browsing|analy[sz]ing)"
)
_EN_FILLS = (
    r"(?:(?:now|first|next|then|just|quickly|also|immediately|actually|go|ahead|and|try|to|by|"
    r"start|begin|proceed|continue|take|have|a|quick|closer|brief)\s+){0,6}"
)
_EN_BEFORE = r"(?:^|[,;–—-]\s*|\b(?:and|so|then|now|next|first|ok|okay|sure|great|alright)\s+)"  # noqa: RUF001
_EN_SAYS = (
    r"(?:let me|i['’]ll|i will|i['’]m going to|i am going to|i['’]m about to|"  # noqa: RUF001
    r"i need to|i have to|allow me to)"
)

# --- German --------------------------------------------------------------------------------------

_DE_DO = (
    "(?:lesen|nachsehen|nachschauen|prüfen|suchen|durchsuchen|öffnen|ausführen|abrufen|aufrufen|"
    "starten|anlegen|erstellen|schreiben|ansehen|anschauen|laden|herunterladen|holen|testen|ändern|"
    "bearbeiten|beginnen|löschen|auflisten|nachschlagen|ermitteln|analysieren|untersuchen|"
    "überprüfen|verwenden|nutzen)"
)
_DE_DOES = (
    "(?:lese|prüfe|überprüfe|suche|durchsuche|öffne|führe|rufe|starte|erstelle|schreibe|lade|hole|"
    "teste|ändere|bearbeite|beginne|lösche|liste|schlage|ermittle|analysiere|untersuche|verwende|"
    "nutze)"
)
_DE_LOOKS = r"(?:sehe|schaue)\b(?!.*\bdass\b)(?=.*\b(?:nach|an|mir|hinein|rein|durch)\b)"
_DE_NOW = (
    r"(?:jetzt|nun|kurz|mal|gleich|zuerst|zunächst|schnell|sofort|dazu|dafür|als nächstes|erst|"
    r"einmal|direkt)"
)
_DE_ACTS = rf"(?:\bich (?:{_DE_DOES}|{_DE_LOOKS})|\b(?:{_DE_DOES}|{_DE_LOOKS}) ich)\b"

# --- French, Spanish, Chinese --------------------------------------------------------------------

_FR_DO = (
    "(?:lire|vérifier|regarder|chercher|rechercher|consulter|ouvrir|exécuter|lancer|examiner|"
    "créer|écrire|modifier|télécharger|analyser|récupérer|commencer)"
)
_FR_FILLS = r"(?:(?:maintenant|d['’]abord|ensuite|juste|rapidement|tout de suite)\s+){0,2}"  # noqa: RUF001
_ES_DO = (
    "(?:leer|revisar|buscar|comprobar|verificar|consultar|abrir|ejecutar|mirar|crear|escribir|"
    "modificar|descargar|analizar|obtener|empezar)"
)
_ES_FILLS = r"(?:(?:ahora|primero|rápidamente|a)\s+){0,2}"
_ZH_SAYS = "(?:让我|我来|我先|我将|我会|我要|我现在|接下来|现在|首先|下面|继续|正在)"
_ZH_DO = "(?:读取|查看|检查|搜索|查找|查询|运行|执行|打开|创建|写入|修改|分析|获取|下载|列出|读|看)"

_ANNOUNCEMENT_PATTERNS = (
    rf"{_EN_BEFORE}{_EN_SAYS}\s+{_EN_FILLS}(?:{_EN_DO}|{_EN_DOING}|start|begin|proceed|continue)\b",
    rf"{_EN_BEFORE}let(?: us|['’]s)\s+{_EN_FILLS}{_EN_DO}\b",  # noqa: RUF001 - and not "let's start!"
    rf"{_EN_BEFORE}{_EN_DOING}\b.*(?:\bnow\W*|\.\.\.|…|:)$",
    rf"\bich (?:werde|muss|möchte)\b.{{0,80}}\b{_DE_DO}\b",
    rf"\blass(?:en sie)? (?:mich|uns)\b.{{0,80}}\b{_DE_DO}\b",
    rf"{_DE_ACTS}.*(?:\b{_DE_NOW}\b|\bnach\W*$|\.\.\.$|…$|:$)",
    rf"\b{_DE_NOW}\b.*{_DE_ACTS}",
    rf"\b(?:je vais|laisse[zr]?-moi|permettez-moi de|je dois)\s+{_FR_FILLS}{_FR_DO}\b",
    rf"\b(?:voy a|vamos a|d[ée]jame|d[ée]jeme|perm[ií]t[ea]me)\s+{_ES_FILLS}{_ES_DO}\b",
    rf"{_ZH_SAYS}.{{0,8}}?{_ZH_DO}",
)
_WAIT_PATTERNS = (
    (
        r"^(?:please )?(?:(?:just )?(?:one|a) (?:moment|second|sec|minute)|hold on|bear with me|"
        r"give me (?:a|one) (?:moment|second|sec|minute))(?: please|, please)?\W*$"
    ),
    r"^(?:einen? )?(?:kleinen )?(?:moment|augenblick)(?:,? bitte)?\W*$",
    r"^un (?:instant|moment|momento)(?:,? (?:s['’]il (?:vous|te) pla[iî]t|por favor))?\W*$",  # noqa: RUF001
    r"^(?:请)?稍(?:等|候)\W*$",
)
"""Requests to wait, for an action that the model has not started."""

_LATER_PATTERNS = (
    r"\b(?:tomorrow|later|next time|from now on|in (?:the )?future|as soon as|whenever|until|unless)\b",
    r"\b(?:if|once|when|after|before)\s+you\b|^(?:if|once|when|after)\b",
    r"\b(?:morgen|später|nächstes mal|künftig|sobald|falls|nachdem)\b",
    r"\b(?:wenn|bevor)\s+(?:sie|du|ihr)\b|^wenn\b",
    r"\b(?:demain|plus tard|dès que|la prochaine fois)\b|\b(?:si|quand) (?:vous|tu)\b",
    r"\b(?:mañana|más tarde|en cuanto|la próxima vez)\b|\b(?:si|cuando) (?:me|usted|quier|dese)",
    "如果|等你|等您|明天|稍后|以后|之后",
)
_REQUEST_PATTERNS = (
    r"\blet me know\b|\b(?:could|would|can|do) you\b|\btell me\b",
    r"\bplease (?:confirm|tell|provide|share|send|give|choose|specify|upload)\b",
    r"\bsag(?:en sie)? mir\b|\bsoll ich\b|\bmöchte(?:st du|n sie)\b",
    r"\bbitte (?:bestätig|teil|nenn|schick|send|gib|geben|wähl)",
    r"\bdites-moi\b|\bdis-moi\b|\b(?:dime|dígame)\b|\bpor favor,? (?:conf|indi|env|di)",
    "请(?:告诉|确认|提供|选择|给)|吗|呢",
)
"""Requests for input from the user."""


def is_only_announcement(text: str) -> bool:
    """Return True if the text consists of an announcement, after at most a short remark."""
    text = text.strip()
    if len(text) > _MAX_LENGTH or _QUESTION.search(text) or _STRUCTURED_CONTENT.search(text):
        return False
    plain = _EMPHASIS_MARKS.sub("", text)
    if _compile_any(_REQUEST_PATTERNS).search(plain):
        return False
    sentences = [each.strip() for each in _SENTENCE.split(plain) if each.strip()]
    announced = 0
    for sentence in reversed(sentences):
        if not _is_announcement(sentence):
            break
        announced += 1
    remark = sentences[: len(sentences) - announced]
    return announced > 0 and sum(map(len, remark)) <= _MAX_REMARK_LENGTH


def _is_announcement(sentence: str) -> bool:
    if _compile_any(_WAIT_PATTERNS).search(sentence):
        return True
    return bool(_compile_any(_ANNOUNCEMENT_PATTERNS).search(sentence)) and not _compile_any(
        _LATER_PATTERNS
    ).search(sentence)
