"""test_abi.py SOURCE GENERATED_INCLUDE CXX - what the package says of dtrain.h and dtrain_cuda.h
is what a compiler says: constants, sizes and offsets of structs, and the parameters of every function."""
import ctypes
import os
import re
import subprocess
import sys
import tempfile
import unittest

from dtrain import _abi

SOURCE, GENERATED, CXX = sys.argv[1:4]

# Functions that the package does not call, and what it has in their place.
UNUSED = {
    **{f"dtrain_{name}": "the asynchronous call, and a wait that hears Ctrl-C" for name in (
        "allreduce broadcast reduce reducescatter allgather alltoall gather scatter send recv "
        "barrier join wait wait_all").split()},
    "dtrain_wait_any": "handles that are asked by poll: it would not hear Ctrl-C",
    "dtrain_broadcast_params": "broadcast_parameters, on process sets too",
    "dtrain_cuda_broadcast_params": "the same",
    "dtrain_codec_destroy": "codecs that are kept",
    "dtrain_dtype_name": "the frameworks' names",
    "dtrain_op_name": "the enumeration Op",
    "dtrain_handle_error": "exceptions, with the text of dtrain_last_error",
}

# Lets a C++ compiler print "name value" lines, which no parser of ours has a part in.
PROBE = """
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <dtrain/dtrain_cuda.h>

template <typename T> void kind()
{
    using value = typename std::conditional<std::is_void<T>::value, int, T>::type;
    if (std::is_void<T>::value)
        printf(" void");
    else if (std::is_pointer<T>::value)
        printf(" pointer");
    else if (std::is_floating_point<T>::value)
        printf(" float%zu", sizeof(value));
    else
        printf(" %s%zu", std::is_enum<T>::value || std::is_signed<T>::value ? "int" : "uint",
               sizeof(value));
}

template <typename R, typename... A> void function(const char *name, R (*)(A...))
{
    printf("%s", name);
    kind<R>();
    using expand = int[];
    (void)expand{0, (kind<A>(), 0)...};
    printf("\\n");
}

int main()
{
@BODY@
}
"""


def kind(ctype):
    if ctype is None:
        return "void"
    if ctype in (ctypes.c_char_p, ctypes.c_void_p) or isinstance(ctype, type(ctypes.POINTER(
            ctypes.c_int))) or issubclass(ctype, ctypes._CFuncPtr):
        return "pointer"
    size = ctypes.sizeof(ctype)
    if ctype in (ctypes.c_float, ctypes.c_double):
        return f"float{size}"
    return ("int" if ctype(-1).value < 0 else "uint") + str(size)


class Abi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = ""
        for header in ("dtrain.h", "dtrain_cuda.h"):
            with open(f"{SOURCE}/include/dtrain/{header}", encoding="utf-8") as file:
                text += file.read()
        cls.header_functions = set(re.findall(r"^DTRAIN_API [^;]*?\b(dtrain_\w+)\(", text, re.M))
        cls.header_constants = set(re.findall(r"^    (DTRAIN_\w+) = ", text, re.M))

    def probe(self, body):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "probe")
            with open(program + ".cpp", "w", encoding="utf-8") as file:
                file.write(PROBE.replace("@BODY@", body))
            subprocess.run([CXX, "-std=c++14", f"-I{SOURCE}/include", f"-I{GENERATED}",
                            "-Wl,--unresolved-symbols=ignore-all", program + ".cpp", "-o", program],
                           check=True)
            output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
        return dict(line.split(" ", 1) for line in output.splitlines())

    def test_module_is_what_the_generator_makes(self):
        done = subprocess.run([sys.executable, f"{SOURCE}/src/python/generate_abi.py", "--check"],
                              check=False)
        self.assertEqual(done.returncode, 0)

    def test_constants_match_the_header(self):
        mine = {name for name in vars(_abi) if name.isupper()
                and name not in ("STRUCTS", "FUNCTIONS", "POINTER", "CFUNCTYPE")}
        self.assertLessEqual({name[len("DTRAIN_"):] for name in self.header_constants}, mine)
        said = self.probe("\n".join(f'printf("{name} %lld\\n", (long long)DTRAIN_{name});'
                                    for name in sorted(mine)))
        self.assertEqual(said, {name: str(getattr(_abi, name)) for name in mine})

    def test_structs_match_the_header(self):
        body, mine = [], {}
        for name, struct in _abi.STRUCTS.items():
            body.append(f'printf("{name} %zu\\n", sizeof({name}));')
            mine[name] = str(ctypes.sizeof(struct))
            for field, _ in struct._fields_:
                body.append(f'printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                            f'sizeof((({name} *)0)->{field}));')
                member = getattr(struct, field)
                mine[f"{name}.{field}"] = f"{member.offset} {member.size}"
        self.assertGreater(len(mine), 20)
        self.assertEqual(self.probe("\n".join(body)), mine)

    def test_every_function_has_its_place_in_the_package(self):
        called = set()
        package = os.path.join(SOURCE, "src/python/dtrain")
        for folder, _, names in os.walk(package):
            for name in names:
                if name.endswith(".py") and name != "_abi.py":
                    with open(os.path.join(folder, name), encoding="utf-8") as file:
                        called.update(re.findall(r"\blib(?:rary)?\.(dtrain_\w+)", file.read()))
        self.assertEqual(self.header_functions - called, set(UNUSED))

    def test_prototypes_match_the_header(self):
        self.assertEqual(set(_abi.FUNCTIONS), self.header_functions)
        # The addresses are given as null pointers of the functions' types: nothing is linked.
        said = self.probe("\n".join(f'function("{name}", (decltype(&{name}))nullptr);'
                                    for name in _abi.FUNCTIONS))
        self.assertEqual(said, {name: " ".join(kind(one) for one in [result] + parameters)
                                for name, (result, parameters) in _abi.FUNCTIONS.items()})


if __name__ == "__main__":
    if CXX.endswith("-NOTFOUND"):
        print("skipped: no C++ compiler to ask about the header")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
