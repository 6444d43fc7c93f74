{{ range .Services }}{{ printf "%v|%s|%d|%v|%q" .Name .Port .NodePort .NodePort .Name }} {{ printf "%v" .External }}{{ end }}
