#pragma once

#include <boost/system/result.hpp>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <utility>

namespace distilld {

/// The kind of an error. Error::message is for people: one sentence that names the field, file or endpoint.
enum class ErrorKind {
    invalid_input,     ///< a spec, a dataset, a model folder: the user can fix it
    io,                ///< a file or a socket could not be read or written
    path_not_allowed,  ///< a file outside the folders that this process may use (base/files/open_file.hpp)
    disk_full,         ///< no space, or another reason that may pass, prevented a write: worth a retry
    teacher,           ///< the teacher refused, sent an unreadable answer or did not answer
    cancelled,         ///< stopped on request
    internal,          ///< a bug
};

/// The kind in machine-readable form: in a job's status_reason, in the worker's last event.
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

/// An expected failure as a value. `result.value()` throws ErrorException if there is no value.
template <class T>
using Result = boost::system::result<T, Error>;

class ErrorException : public std::runtime_error {
  public:
    explicit ErrorException(Error error) : std::runtime_error(error.message), error_(std::move(error)) {}
    [[nodiscard]] const Error& error() const noexcept { return error_; }

  private:
    Error error_;
};

/// boost::system::result finds this through argument-dependent lookup.
[[noreturn]] inline void throw_exception_from_error(const Error& error, const boost::source_location&) {
    throw ErrorException(error);
}

[[nodiscard]] inline Error invalid_input(std::string message) {
    return Error{ErrorKind::invalid_input, std::move(message)};
}
[[nodiscard]] inline Error io_error(std::string message) {
    return Error{ErrorKind::io, std::move(message)};
}
/// A file could not be written, for the reason `number` (an errno). disk_full if the reason may pass or be fixed from
/// outside: no space, a quota, no file descriptor left, a read-only file system; otherwise io.
[[nodiscard]] inline Error write_error(std::string message, int number) {
    const bool passes = number == ENOSPC || number == EDQUOT || number == EMFILE || number == ENFILE || number == EROFS;
    return Error{passes ? ErrorKind::disk_full : ErrorKind::io, std::move(message)};
}
[[nodiscard]] inline Error teacher_error(std::string message) {
    return Error{ErrorKind::teacher, std::move(message)};
}

}  // namespace distilld
