#!/usr/bin/env python3
"""generate_abi.py [--check] - makes dtrain/_abi.py of include/dtrain/dtrain.h and dtrain_cuda.h.

The module holds the headers' constants, structs and prototypes for ctypes. With --check it is only
compared, and the exit status is 1 when it is not what the headers say.
"""
import os
import re
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
HEADERS = [os.path.join(ROOT, "include/dtrain", name) for name in ("dtrain.h", "dtrain_cuda.h")]
MODULE = os.path.join(HERE, "dtrain/_abi.py")

SCALARS = {
    "int": "c_int", "unsigned": "c_uint", "double": "c_double", "float": "c_float",
    "size_t": "c_size_t", "int8_t": "c_int8", "uint8_t": "c_uint8", "int16_t": "c_int16",
    "uint16_t": "c_uint16", "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64",
    "uint64_t": "c_uint64", "char": "c_char",
}


class Header:
    """What a header of the project's style declares; anything else is an error, not a gap."""

    def __init__(self, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"\\\n", " ", text)
        self.types = dict(SCALARS)
        self.constants = [(name, int(value, 0)) for name, value in
                          re.findall(r"^#define (DTRAIN_\w+)\s+(-?\w+?)[uU]?$", text, flags=re.M)
                          if re.fullmatch(r"-?(0x)?[0-9a-fA-F]+", value)]
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        text = text.replace('extern "C" {', "")
        self.structs = []    # (C name, [(field, type)])
        self.callbacks = []  # (C name, result, [types])
        self.functions = []  # (name, result, [types])
        self.opaque = []
        for declaration in self._declarations(text):
            self._read(declaration)

    @staticmethod
    def _declarations(text):
        depth, start = 0, 0
        for place, char in enumerate(text):
            depth += {"{": 1, "}": -1}.get(char, 0)
            if char == ";" and depth == 0:
                yield " ".join(text[start:place].split())
                start = place + 1
            depth = max(depth, 0)  # the brace that closes extern "C"

    def _read(self, text):
        text = text.lstrip("} ")
        if match := re.fullmatch(r"typedef enum \w+ \{(.*)\} (\w+)", text):
            self.types[match[2]] = "c_int"
            for name, value in re.findall(r"(\w+) = (-?\d+)", match[1]):
                self.constants.append((name, int(value)))
            if len(re.findall(r"=", match[1])) != len([x for x in match[1].split(",") if x.strip()]):
                raise ValueError(f"an enumerator of {match[2]} has no number of its own")
        elif match := re.fullmatch(r"typedef struct (\w+) (\w+)", text):
            self.types[match[2]] = None
            self.opaque.append(match[2])
        elif match := re.fullmatch(r"typedef struct \w+ \{(.*)\} (\w+)", text):
            fields = [field for line in match[1].split(";") if line.strip()
                      for field in self._fields(line.strip())]
            self.types[match[2]] = class_name(match[2])
            if match[2] in self.opaque:
                self.opaque.remove(match[2])
            self.structs.append((match[2], fields))
        elif match := re.fullmatch(r"typedef (.*)\(\*(\w+)\)\((.*)\)", text):
            self.types[match[2]] = class_name(match[2])
            self.callbacks.append((match[2], self._type(match[1]),
                                   self._parameters(match[3])))
        elif match := re.fullmatch(r"typedef (\w+) (\w+)", text):
            self.types[match[2]] = self._type(match[1])
        elif match := re.fullmatch(r"DTRAIN_API (.*?)(dtrain_\w+)\((.*)\)", text):
            self.functions.append((match[2], self._type(match[1]),
                                   self._parameters(match[3])))
        elif text:
            raise ValueError(f"cannot read: {text}")

    def _fields(self, line):
        """The (name, type) of one line of a struct, which may declare several."""
        if match := re.fullmatch(r"(.*)\(\*(\w+)\)\((.*)\)", line):
            kinds = [self._type(match[1])] + self._parameters(match[3])
            yield match[2], f"CFUNCTYPE({', '.join(str(kind) for kind in kinds)})"
            return
        base, names = re.fullmatch(r"((?:const )?\w+)\s*(.*)", line).groups()
        for name in names.split(","):
            stars, field, length = re.fullmatch(r"\s*([*\s]*)(\w+)(?:\[(\w+)\])?", name).groups()
            kind = self._type(base + " " + stars)
            if length:
                length = dict(self.constants).get(length, length)
                kind = f"{kind} * {length}"
            yield field, kind

    def _parameters(self, text):
        if text.strip() in ("", "void"):
            return []
        return [self._type(re.sub(r"(\w+)\s*$", "", part) if not part.strip().endswith("*")
                           else part) for part in text.split(",")]

    def _type(self, text):
        text = text.replace("const", " ").strip()
        stars = text.count("*")
        base = text.replace("*", " ").strip()
        if base.startswith("struct ") and stars:  # one that is being defined: its address alone
            return ["c_void_p", "POINTER(c_void_p)"][stars - 1]
        if base == "void":
            return [None, "c_void_p", "POINTER(c_void_p)"][stars]
        if base == "char" and stars:
            return ["c_char_p", "POINTER(c_char_p)"][stars - 1]
        if base not in self.types:
            raise ValueError(f"unknown type: {text}")
        kind = self.types[base]
        if kind is None:  # opaque, known by its address alone
            kind, stars = "c_void_p", stars - 1
        for _ in range(stars):
            kind = f"POINTER({kind})"
        return kind


def class_name(c_name):
    """dtrain_sampler_desc_t gives SamplerDesc, dtrain_callback_fn_t gives CallbackFn."""
    return "".join(word.capitalize() for word in c_name[len("dtrain_"):-len("_t")].split("_"))


def version():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        parts = re.search(r"project\(dtrain VERSION (\d+)\.(\d+)\.(\d+)", file.read()).groups()
    return [int(part) for part in parts]


def in_order(header):
    """Callbacks and structs, each after those it is made of."""
    pending = ([(class_name(name), ("callback", result, kinds), kinds + [result])
                for name, result, kinds in header.callbacks]
               + [(class_name(name), ("struct", name, fields), [kind for _, kind in fields])
                  for name, fields in header.structs])
    names = {name for name, _, _ in pending}
    done = set()
    while pending:
        for item in pending:
            needs = {word for kind in item[2] for word in re.findall(r"\w+", str(kind))} & names
            if needs <= done:
                break
        else:
            raise ValueError(f"structs that contain each other: {[x[0] for x in pending]}")
        pending.remove(item)
        done.add(item[0])
        yield item[0], item[1]


def listed(kinds):
    return "[" + ", ".join(str(kind) for kind in kinds) + "]"


def generate(header):
    major, minor, patch = version()
    lines = [f"VERSION = {major * 10000 + minor * 100 + patch}", ""]
    lines += [f"{name[len('DTRAIN_'):]} = {value}" for name, value in header.constants]
    for name, (form, first, second) in in_order(header):
        if form == "callback":
            lines += ["", f"{name} = CFUNCTYPE({', '.join([str(first)] + second)})"]
            continue
        lines += ["", "", f"class {name}(Structure):", f'    """{first}"""', "    _fields_ = ["]
        lines += [f'        ("{field}", {kind}),' for field, kind in second]
        lines += ["    ]"]
    lines += ["", "", "# C name: class, of structs that callers see into.", "STRUCTS = {"]
    lines += [f'    "{name}": {class_name(name)},' for name, _ in header.structs]
    lines += ["}", "", "# Name: (result, [parameters])", "FUNCTIONS = {"]
    for name, result, kinds in header.functions:
        line = f'    "{name}": ({result}, {listed(kinds)}),'
        if len(line) > 100:
            line = f'    "{name}": (\n        {result}, {listed(kinds)}),'
        lines.append(line)
    lines += ["}", ""]
    text = "\n".join(lines)
    used = sorted(set(re.findall(r"\b(CFUNCTYPE|POINTER|Structure|c_\w+)\b", text)))
    imports = textwrap.fill(f"from ctypes import ({', '.join(used)})", 100,
                            subsequent_indent=" " * len("from ctypes import ("))
    title = '"""What dtrain.h and dtrain_cuda.h declare, for ctypes. Made by generate_abi.py; not edited by hand."""'
    return f"{title}\n{imports}\n\n{text}"


def main():
    declared = ""
    for path in HEADERS:
        with open(path, encoding="utf-8") as file:
            declared += file.read()
    text = generate(Header(declared))
    if sys.argv[1:] == ["--check"]:
        with open(MODULE, encoding="utf-8") as file:
            if file.read() == text:
                return 0
        print(f"{MODULE} is not what the headers say: run src/python/generate_abi.py")
        return 1
    if sys.argv[1:]:
        print(__doc__)
        return 2
    with open(MODULE, "w", encoding="utf-8") as file:
        file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
