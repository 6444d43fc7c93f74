{{ range .words }}<{{ . }}>{{ end }}
