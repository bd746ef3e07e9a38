// Package browser walks through the support screen in a real headless Chromium: the program serves it over a database in which
// real workers have left tasks of every kind of end. It also looks at every page narrow, dark, without JavaScript and by
// keyboard, and tries to get hostile text to run.
//
// It is a module of its own because of chromedp, and it needs Chromium: make browser-test runs the tests here. The pictures that
// they take stay in bin/screens.
package browser
