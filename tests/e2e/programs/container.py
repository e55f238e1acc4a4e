"""Runs a program under the system-call filter of a container engine's profile: python3 container.py PROFILE LEFT_OUT COMMAND...

LEFT_OUT: names of calls, separated by commas, that the profile is taken not to allow; or `-`. What is not understood of the
profile is an error. As with an engine, no_new_privs comes along for who is not root.
"""

import ctypes
import json
import os
import platform
import re
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[platform.machine()]
LOAD, EQUAL, GREATER, RETURN = 0x20, 0x15, 0x25, 0x06
ALLOW = 0x7FFF0000
NUMBER, ABI = 0, 4


def line(code, value, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, value)


def numbers():
    """The machine's system calls, from the compiler's headers."""
    defined = subprocess.run(
        ["cc", "-E", "-dM", "-include", "sys/syscall.h", "-"], stdin=subprocess.DEVNULL, check=True, capture_output=True, text=True
    ).stdout
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)\n", defined)}


def rule(number, arguments):
    """Allows one call, if its arguments are like this; the low halves are looked at."""
    body = []
    for argument in arguments:
        # Each of these goes on where it fits, and past the rule where not. Filled in below.
        body += [line(LOAD, 16 + 8 * argument["index"]), (argument["op"], argument["value"] & 0xFFFFFFFF)]
    body.append(line(RETURN, ALLOW))
    for place, part in enumerate(body):
        if isinstance(part, tuple):
            past = len(body) - place - 1
            operation, value = part
            body[place] = {
                "SCMP_CMP_EQ": line(EQUAL, value, 0, past),
                "SCMP_CMP_GT": line(GREATER, value, 0, past),
                # Not at least that.
                "SCMP_CMP_LT": line(0x35, value, past, 0),
            }[operation]
    return [line(EQUAL, number, 0, len(body))] + body + [line(LOAD, NUMBER)]


def main(profile, left_out, *command):
    with open(profile) as file:
        profile = json.load(file)
    assert profile["defaultAction"] == "SCMP_ACT_ERRNO"
    refuse = 0x00050000 | profile["defaultErrnoRet"]
    known = numbers()
    program = [line(LOAD, ABI), line(EQUAL, ARCHITECTURE, 1, 0), line(RETURN, refuse), line(LOAD, NUMBER)]
    for entry in profile["syscalls"]:
        assert entry["action"] == "SCMP_ACT_ALLOW" and not set(entry) - {"names", "action", "args", "comment"}, entry
        for name in entry["names"]:
            # A profile names calls of other machines and of newer kernels too.
            if name in known and name not in left_out.split(","):
                program += rule(known[name], entry.get("args", []))
    program.append(line(RETURN, refuse))
    code = ctypes.create_string_buffer(b"".join(program))
    filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    assert LIBC.prctl(38, 1, 0, 0, 0) == 0
    assert LIBC.prctl(22, 2, filter) == 0, os.strerror(ctypes.get_errno())
    os.execvp(command[0], command)


main(*sys.argv[1:])
