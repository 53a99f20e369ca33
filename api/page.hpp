#pragma once

#include <string_view>

namespace distilld::api {

/// The page that the service shows at "/", made of the files in web/ when the program was built.
struct Page {
    std::string_view html;    ///< one document that loads nothing else
    std::string_view gzip;    ///< the same, packed
    std::string_view etag;    ///< of `html`, with its quotes
    std::string_view policy;  ///< its Content-Security-Policy
};

/// Null: the program was built without it (DISTILLD_WITH_PAGE=OFF).
[[nodiscard]] const Page* built_in_page();

}  // namespace distilld::api
