#pragma once

#include <boost/system/result.hpp>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <utility>

namespace distilld {

/// What went wrong, for a person: one sentence that names the field, file or endpoint.
enum class ErrorKind {
    invalid_input,     ///< a spec, a dataset, a model folder: the user's to mend
    io,                ///< a file or a socket could not be read or written
    path_not_allowed,  ///< a file that leads where this process may not go (base/open_file.hpp)
    disk_full,  ///< a file could not be written, for lack of space or of what else may come back: worth another try
    teacher,    ///< the teacher refused, answered garbage or stayed away
    cancelled,  ///< stopped on request
    internal,   ///< a defect of ours
};

/// The kind as programs read it: in a job's status_reason, in the worker's last event.
[[nodiscard]] constexpr const char* to_string(ErrorKind kind) noexcept {
    switch (kind) {
        case ErrorKind::invalid_input:
            return "invalid_input";
        case ErrorKind::io:
            return "io";
        case ErrorKind::path_not_allowed:
            return "path_not_allowed";
        case ErrorKind::disk_full:
            return "disk_full";
        case ErrorKind::teacher:
            return "teacher";
        case ErrorKind::cancelled:
            return "cancelled";
        case ErrorKind::internal:
            return "internal";
    }
    return "internal";
}

struct Error {
    ErrorKind kind = ErrorKind::internal;
    std::string message;
};

/// An expected failure as a value. `result.value()` throws ErrorException when there is none.
template <class T>
using Result = boost::system::result<T, Error>;

class ErrorException : public std::runtime_error {
  public:
    explicit ErrorException(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
    [[nodiscard]] const Error& error() const noexcept { return error_; }

  private:
    Error error_;
};

/// Found by boost::system::result through argument-dependent lookup.
[[noreturn]] inline void throw_exception_from_error(const Error& error, const boost::source_location&) {
    throw ErrorException(error);
}

[[nodiscard]] inline Error invalid_input(std::string message) {
    return Error{ErrorKind::invalid_input, std::move(message)};
}
[[nodiscard]] inline Error io_error(std::string message) {
    return Error{ErrorKind::io, std::move(message)};
}
/// A file could not be written, for the reason `number` (an errno). disk_full when that passes, or is mended from
/// outside, without the program: no space, a quota, no file descriptor left, a file system that has become read-only;
/// else io.
[[nodiscard]] inline Error write_error(std::string message, int number) {
    const bool passes = number == ENOSPC || number == EDQUOT || number == EMFILE || number == ENFILE || number == EROFS;
    return Error{passes ? ErrorKind::disk_full : ErrorKind::io, std::move(message)};
}
[[nodiscard]] inline Error teacher_error(std::string message) {
    return Error{ErrorKind::teacher, std::move(message)};
}

}  // namespace distilld
