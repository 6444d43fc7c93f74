{{ with printf "%s-%d" .name .n }}{{ . }} {{ len . }}{{ end }}
