#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld::http {

/// The head of one part of a form.
struct MultipartPart {
    std::string name;
    std::optional<std::string> filename;  ///< as the client wrote it; do not use it as a path
};

/// Takes the parts of a form in order. An error stops the reader, which returns it.
class MultipartHandler {
  public:
    virtual ~MultipartHandler() = default;
    virtual Result<void> begin(const MultipartPart& part) = 0;
    virtual Result<void> data(std::string_view bytes) = 0;
    virtual Result<void> end() = 0;
};

/// The boundary from a Content-Type of multipart/form-data. The error (invalid_input) says what is wrong.
[[nodiscard]] Result<std::string> multipart_boundary(std::string_view content_type);

/// Reads multipart/form-data (RFC 7578) as it arrives, in pieces of any size. Buffers at most the head of a part and
/// the possible beginning of a boundary. No I/O; one thread at a time. Errors are invalid_input.
class MultipartReader {
  public:
    static constexpr std::size_t kMaxHeadBytes = 8U << 10;
    static constexpr std::size_t kMaxParts = 32;

    /// `handler` must outlive the reader.
    MultipartReader(const std::string& boundary, MultipartHandler& handler);

    /// Do not call it again after an error.
    Result<void> feed(std::string_view bytes);
    /// To be called at the end of the body. An error if the form is incomplete.
    Result<void> finish() const;

  private:
    enum class Place { preamble, behind_boundary, head, body, epilogue };
    /// False: more bytes are needed.
    Result<bool> go_on();
    Result<bool> read_body();
    Result<bool> read_head();
    Result<bool> read_behind_boundary();
    bool read_preamble();

    const std::string delimiter_;
    MultipartHandler& handler_;
    std::string pending_;
    Place place_ = Place::preamble;
    std::size_t parts_ = 0;
};

}  // namespace distilld::http
