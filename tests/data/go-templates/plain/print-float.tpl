{{ .pi }} {{ .million }} {{ .tiny }}
