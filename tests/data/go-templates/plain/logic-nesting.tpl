{{ if and (or .no .yes) (not (and .yes .no)) }}a{{ end }}{{ if not (eq .n 1) }}b{{ end }}{{ or (and .yes "x") "y" }}{{ not (or .no .empty) }}{{ eq (eq 1 1) true }}
