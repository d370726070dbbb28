"""The configuration: loading, decoding, comparison and display.

loader          finds and reads all sources, the only reader of the environment
layers          merges default, environment, file and `--set`, and remembers the origin of values
decode, values  decode the merged document into settings; secrets, paths, durations and sizes
toml_lines, credentials  line numbers of keys; secrets in a folder of files
model_defaults, unsupported  defaults of the model; keys without effect in this version
diff, render    changes that apply without a restart; settings as TOML, schema and documentation
"""
