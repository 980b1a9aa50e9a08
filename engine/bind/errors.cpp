#include "base/errors.h"

#include <string_view>

#include "bind.h"

namespace octavo {

namespace {

// File names and what a corrupt file holds need not be valid UTF-8.
nb::object to_text(std::string_view s) {
  return nb::steal(PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "replace"));
}

// Raises octavo.errors.<class for code>(message, code=..., param=...): the one mapping from C++ errors to Python.
void raise(const Error& e) {
  nb::object make = nb::module_::import_("octavo.errors").attr("from_engine");
  nb::object exception = make(error_code_name(e.code()), to_text(e.param()), to_text(e.what()));
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

}  // namespace

void bind_errors(nb::module_&) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      try {
        raise(e);
      } catch (nb::python_error& nested) {
        nested.restore();
      }
    }
  });
}

}  // namespace octavo
