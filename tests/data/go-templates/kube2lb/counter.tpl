{{ $n := 0 }}{{ range .Services }}{{ $n = Add $n (len .Endpoints) }}{{ end }}{{ $n }} {{ printf "%03d" $n }}
