#pragma once

#include <string_view>

namespace distilld::api {

/// The service's page at "/", built from web/.
struct Page {
    std::string_view html;    ///< one document that loads nothing else
    std::string_view gzip;    ///< the same, compressed
    std::string_view etag;    ///< of `html`, including the quotation marks
    std::string_view policy;  ///< its Content-Security-Policy
};

/// Null if the program was built without it (DISTILLD_WITH_PAGE=OFF).
[[nodiscard]] const Page* built_in_page();

}  // namespace distilld::api
