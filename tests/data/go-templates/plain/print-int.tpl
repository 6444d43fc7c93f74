{{ .n }} {{ .neg }} {{ .zero }} {{ .big }}
