{{ .map }} {{ .emptymap }} {{ .people }}
