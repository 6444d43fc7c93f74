{{ define "fixed" }}[{{ . }}]{{ end }}{{ template "fixed" }}{{ template "fixed" 5 }}{{ template "fixed" "x" }}
