{{ .absent.deeper.still }} {{ if .absent.x }}a{{ else }}b{{ end }} {{ print "c" | }}
