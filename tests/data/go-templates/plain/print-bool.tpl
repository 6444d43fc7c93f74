{{ .yes }} {{ .no }} {{ true }} {{ false }}
