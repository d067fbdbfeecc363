# terminal.py COLUMNS PROGRAM [ARGUMENT...] - runs a program on a terminal of its own and does what standard input says, line by line:
#   type TEXT      writes it, with Python's escapes, as a paste comes: in pieces of 256 bytes
#   until TEXT     waits until the program has written this behind the last such text, 60 seconds at most
#   wait SECONDS
# Then it waits for the program's end, 20 seconds at most. Prints what the program wrote; ends with its status (128 + a signal), 124
# when it did not end, 125 when something did not come, 126 when the terminal is not as others expect it.
import fcntl, os, pty, select, signal, struct, sys, termios, time

modes = termios.ICANON | termios.ECHO
pid, terminal = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[2], sys.argv[2:])
out, over, seen = b"", False, 0


def read(seconds, text=None):
    """Takes what comes, for so long or until there is such a text; whether there is."""
    global out, over, seen
    end = time.time() + seconds
    while True:
        if text is not None and text in out[seen:]:
            seen = out.index(text, seen) + len(text)
            return True
        if time.time() > end or over:
            return False
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                piece = b""
            over = not piece
            out += piece


status = 0
for step in sys.stdin:
    word, _, rest = step.rstrip("\n").partition(" ")
    text = rest.encode().decode("unicode_escape").encode("latin-1")
    if word == "type":
        while text:
            text = text[os.write(terminal, text[:256]):]
            read(0.005)
    elif word == "wait":
        read(float(rest))
    elif not read(60, text):
        status = 125
ended = (0, 0)
end = time.time() + 20
while ended == (0, 0) and time.time() < end:
    read(0.1)
    ended = os.waitpid(pid, os.WNOHANG)
if ended == (0, 0):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    status = 124
elif not status:
    code = ended[1]
    status = 128 + (code & 127) if code & 127 else code >> 8
    if termios.tcgetattr(terminal)[3] & modes != modes:
        status = 126
sys.stdout.buffer.write(out)
sys.exit(status)
