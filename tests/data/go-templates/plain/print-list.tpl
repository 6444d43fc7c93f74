{{ .words }} {{ .numbers }} {{ .mixed }} {{ .none }} {{ .nested }}
