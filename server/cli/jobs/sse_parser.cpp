#include "server/cli/jobs/sse_parser.hpp"

#include <stdexcept>

namespace distilld::cli {

void SseParser::feed(std::string_view bytes) {
    rest_.append(bytes);
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
        std::string_view text(rest_.data() + begin, end - begin);
        if (text.ends_with('\r')) {
            text.remove_suffix(1);
        }
        line(text);
    }
    rest_.erase(0, begin);
    if (rest_.size() + event_.data.size() > kLimit) {
        throw std::length_error("a server-sent event is too large");
    }
}

void SseParser::line(std::string_view text) {
    if (text.empty()) {
        if (has_data_) {
            on_event_(event_);
        }
        event_.type = "message";
        event_.data.clear();
        has_data_ = false;
        return;
    }
    const std::size_t colon = text.find(':');
    const std::string_view field = text.substr(0, colon);
    std::string_view value;
    if (colon != std::string_view::npos) {
        value = text.substr(colon + 1);
    }
    if (value.starts_with(' ')) {
        value.remove_prefix(1);
    }
    if (field == "event") {
        event_.type = value.empty() ? "message" : std::string(value);
    }
    if (field == "id") {
        event_.id = value;
    }
    if (field == "data") {
        if (has_data_) {
            event_.data += '\n';
        }
        event_.data += value;
        has_data_ = true;
    }
}

}  // namespace distilld::cli
