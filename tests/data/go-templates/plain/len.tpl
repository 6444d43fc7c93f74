{{ len .words }} {{ len .name }} {{ len .unicode }} {{ len .map }} {{ len .empty }} {{ .none | len }}
