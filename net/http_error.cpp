#include "net/http_error.hpp"

#include <boost/beast/http/error.hpp>
#include <boost/system/error_category.hpp>
#include <string>

namespace distilld {
namespace {

namespace bhttp = boost::beast::http;
using boost::system::error_code;

class Category final : public boost::system::error_category {
  public:
    [[nodiscard]] const char* name() const noexcept override { return "distilld.http"; }
    [[nodiscard]] std::string message(int number) const override {
        switch (static_cast<HttpError>(number)) {
            case HttpError::transfer_encoding:
                return "Transfer-Encoding must be chunked, once and alone, in HTTP/1.1";
            case HttpError::too_many_interim_answers:
                return "too many interim answers (HTTP 1xx)";
            case HttpError::protocol_switched:
                return "HTTP 101 switches to a protocol that was not requested";
            case HttpError::bytes_behind_answer:
                return "bytes follow its end";
        }
        return "unknown error";
    }
};

}  // namespace

error_code make_error_code(HttpError error) noexcept {
    static const Category category;
    return {static_cast<int>(error), category};
}

bool is_malformed(error_code failed) noexcept {
    const auto& beast = bhttp::make_error_code(bhttp::error::bad_version).category();
    const auto& own = make_error_code(HttpError::transfer_encoding).category();
    return failed && failed != bhttp::error::end_of_stream && failed != bhttp::error::partial_message &&
           (failed.category() == beast || failed.category() == own);
}

bool is_header_limit(error_code failed) noexcept {
    return failed == bhttp::error::header_limit || failed == bhttp::error::buffer_overflow;
}

}  // namespace distilld
