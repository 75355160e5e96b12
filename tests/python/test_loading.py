"""How the package finds its library, and what it says when it cannot."""
import os
import subprocess
import sys
import unittest

from dtrain import _abi, _library


def run(code, **environment):
    env = {**os.environ, **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True,
                          check=False)


class Loading(unittest.TestCase):
    def test_library_of_the_variable_is_loaded(self):
        self.assertEqual(_library.path, os.environ["DTRAIN_LIBRARY"])

    def test_every_function_has_its_types(self):
        for name, (result, parameters) in _abi.FUNCTIONS.items():
            function = getattr(_library.lib, name)
            self.assertEqual((function.restype, function.argtypes), (result, parameters))

    def test_path_that_is_not_there_is_named(self):
        done = run("import dtrain", DTRAIN_LIBRARY="/nowhere/libdtrain.so")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ImportError", done.stderr)
        self.assertIn("/nowhere/libdtrain.so", done.stderr)

    def test_another_library_is_refused(self):
        done = run("import dtrain", DTRAIN_LIBRARY="libc.so.6")
        self.assertIn("ImportError: libc.so.6 is not libdtrain", done.stderr)

    def test_another_version_is_refused(self):
        done = run("import dtrain._library as l, dtrain._abi as a\n"
                   "a.VERSION += 100\n"
                   "try: l.load(l.path)\n"
                   "except ImportError as error: print(error)")
        self.assertIn("this package is made for 0.2.0", done.stdout)


if __name__ == "__main__":
    unittest.main()
