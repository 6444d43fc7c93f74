{{ range .Services }}{{ printf "%v|%s|%d|%v|%t" .Name .Port .NodePort .NodePort true }} {{ printf "%v" .External }}{{ end }}
