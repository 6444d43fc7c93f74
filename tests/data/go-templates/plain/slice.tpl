{{ slice .words 1 }} {{ slice .words 1 2 }} {{ slice .name 1 3 }} {{ slice .name 2 }} {{ slice .words }} {{ slice .words 3 }}
