package access

// All that people read here.
const (
	textWrong      = "Name or password is wrong."
	textWait       = "Too many wrong passwords. Wait a moment, then try again."
	textBusy       = "Many people are signing in right now. Try again in a moment."
	textSignIn     = "Please sign in. If you were, your session has ended."
	textToken      = "The token is wrong or was removed."
	textViewer     = "You may look, but not change anything: this needs an operator."
	textOrigin     = "Refused: the request came from another site. Open the page here and try again."
	textHeader     = "Refused: the request carries a header that only a trusted proxy may send, or carries it wrongly. The log says which."
	textPlain      = "Refused: plain HTTP is for this host and for trusted proxies. Come by https."
	textPath       = "There is no such page: the path is malformed."
	textMethod     = "This method is not for this address."
	textBody       = "The request could not be read."
	textForm       = "Send the form of the sign-in page."
	textLong       = "The request is too long; the limit is "
	textUsers      = "Nobody can sign in at the moment: the users' file cannot be read. The log says why."
	textOnlyProxy  = "Please come by the address at which you sign in; this server does not ask for passwords."
	textLeaveProxy = "Please sign out where you signed in; this server does not ask for passwords."
)

var pageTexts = map[string]string{
	"product":  "Settle",
	"signIn":   "Sign in",
	"name":     "Name",
	"password": "Password",
	"home":     "To the first page",
}
