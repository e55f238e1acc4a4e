"""A sandbox like netbox's that lacks one wall: python3 stand_in.py WALL COMMAND...

What gets out of it, and not out of netbox, shows what that wall is for. It has neither a system-call filter nor supervised
connects nor masks; WALL names what else it lacks:

  net, pid, ipc    that namespace
  user             the user namespace, for real root: the command keeps every capability
  nested           the user namespace of the command's own: it has the capabilities of the first process
  session          a session of its own
  keyring          a session keyring of its own
  descriptors      nothing is closed
  privileges       no_new_privs
  calls            nothing else
"""

import os
import sys

from calls import LIBC, NEWIPC, NEWNET, NEWNS, NEWPID, NEWUSER, check, enter_namespaces, syscall

JOIN_SESSION_KEYRING = 1
MS_REC_PRIVATE = 0x4000 | 0x40000
PR_SET_NO_NEW_PRIVS = 38


def main(wall, *command):
    namespaces = {"net": NEWNET, "pid": NEWPID, "ipc": NEWIPC, "user": NEWUSER}
    assert wall in [*namespaces, "nested", "session", "keyring", "descriptors", "privileges", "calls"], wall
    enter_namespaces(NEWNS | sum(flag for name, flag in namespaces.items() if name != wall), wall == "nested")
    wait_for_child()
    check(LIBC.mount(b"none", b"/", None, MS_REC_PRIVATE, None))
    if wall != "pid":
        check(LIBC.mount(b"proc", b"/proc", b"proc", 0, None))
    # The first process waits, as netbox's does.
    wait_for_child()
    if wall != "session":
        os.setsid()
    if wall != "keyring":
        syscall("keyctl", JOIN_SESSION_KEYRING, 0)
    if wall != "descriptors":
        os.closerange(3, 1 << 16)
    if wall not in ("nested", "user"):
        enter_namespaces(NEWUSER)
    if wall != "privileges":
        check(LIBC.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    os.execvp(command[0], command)


def wait_for_child():
    """Returns in a child; this process ends as that does."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)


main(*sys.argv[1:])
