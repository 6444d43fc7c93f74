{{ .name | printf "%s!" }} {{ .n | printf "%d-%d" 7 | printf "%s?" }} {{ .words | len }} {{ "x" | print }}
