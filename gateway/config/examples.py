"""Sans-IO: a short TOML example for each section of the configuration page.

The tests of the documentation load every example.
"""

from collections.abc import Iterator

_EXAMPLES = {
    "[gateway]": """
[gateway]
busy = "collect"            # messages sent during a turn are joined into one
drain_seconds = 120
log_format = "json"
""",
    "[store]": """
[store]
url = "postgresql://holdfast@db.example.org/holdfast"
""",
    "[model]": """
[model]
provider = "anthropic"
api_key = "credential:ANTHROPIC_API_KEY"
name = "claude-sonnet-5-5"

[[model.fallback]]          # answers when the first model fails
base_url = "http://127.0.0.1:11434/v1"
name = "qwen3:8b"
""",
    "[model.price]": """
[model]
name = "gpt-5.5"
price = { input = 1.25, output = 10.0, cached = 0.125 }
""",
    "[model.timeouts]": """
[model.timeouts]
first_token = 300           # a slow model on this machine
wire_dead = 300
""",
    "[agent]": """
[agent]
system_prompt = "You are the assistant of a small bakery. Answer in Dutch."
max_steps = 40
""",
    "[voice]": """
[voice]
transcription_url = "http://127.0.0.1:8000/v1"
transcription_model = "whisper-large-v3"
""",
    "[media]": """
[media]
largest = "10MB"
keep = "7d"
""",
    "[tools]": """
[tools]
enabled = ["files"]
approval = "ask"
""",
    "[[mcp]]": """
[[mcp]]
name = "tickets"
command = "tickets-mcp"
args = ["--project", "home"]
env = { TICKETS_TOKEN = "env:TICKETS_TOKEN" }
""",
    "[mcp.oauth]": """
[[mcp]]
name = "wiki"
url = "https://wiki.example.org/mcp"

[mcp.oauth]
client_id = "holdfast-of-ann"
redirect_port = 8765
""",
    "[mcp.tools]": """
[[mcp]]
name = "tickets"
command = "tickets-mcp"

[mcp.tools]
allow = ["get_*", "search"]
deny = ["get_secret"]
""",
    "[sessions]": """
[sessions]
reset = "idle"
idle_minutes = 240
keep_days = 90
""",
    "[access]": """
[access]
allow = ["telegram:1001", "slack:T1/*", "discord:2002/role:3003"]
admins = ["telegram:1001"]
""",
    "[limits]": """
[limits]
messages_per_minute = 10
tokens_per_day = 200_000
""",
    "[limits.all]": """
[limits.all]
tokens_per_day = 2_000_000
""",
    "[limits.chats.NAME]": """
[limits.chats."telegram:-100123"]
tokens_per_day = 500_000
""",
    "[limits.users.NAME]": """
[limits.users."telegram:1001"]
tokens_per_day = 1_000_000
""",
    "[platforms.discord]": """
[platforms.discord]
token = "env:DISCORD_BOT_TOKEN"
""",
    "[platforms.slack]": """
[platforms.slack]
bot_token = "env:SLACK_BOT_TOKEN"
app_token = "env:SLACK_APP_TOKEN"
""",
    "[platforms.telegram]": """
[platforms.telegram]
token = "env:TELEGRAM_BOT_TOKEN"
require_mention = false     # in groups, answer every message that the bot can read
""",
    "[http]": """
[http]
host = "0.0.0.0"
api_key = "file:/etc/holdfast/api_key"
allowed_hosts = ["chat.example.org"]
""",
    "[[route]]": """
[[route]]
match = "telegram:-100*"
system_prompt = "You are in a group. Be brief."
tools = []
""",
}


def example_lines(header: str) -> Iterator[str]:
    """Yield the lines of a section's example as a fenced block; nothing without an example."""
    if text := _EXAMPLES.get(header):
        yield from ("", "```toml", *text.strip().splitlines(), "```")
