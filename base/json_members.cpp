#include "base/json_members.hpp"

#include "base/utf8.hpp"

namespace distilld {

std::string JsonMembers::brief(const boost::json::value& value) {
    constexpr std::size_t kMaxBytes = 60;
    std::string text = to_text(value);
    if (text.size() > kMaxBytes) {
        text = std::string(cut_utf8(text, kMaxBytes - 3)) + "...";
    }
    return text;
}

}  // namespace distilld
