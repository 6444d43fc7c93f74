{{ $i := 0 }}{{ $s := "" }}{{ range .words }}{{ $s = print $s . "-" }}{{ end }}{{ $s }}{{ $i }}
