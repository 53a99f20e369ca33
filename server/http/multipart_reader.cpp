#include "server/http/multipart_reader.hpp"

#include <algorithm>
#include <utility>

#include "base/ascii.hpp"

namespace distilld::http {
namespace {

constexpr std::size_t kMaxBoundary = 70;  // RFC 2046 §5.1.1
constexpr std::string_view kBlanks = " \t";

/// Reads up to the closing quotation mark and removes that from `text`, which begins after the opening one.
std::string take_quoted(std::string_view& text) {
    std::string value;
    while (!text.empty() && text.front() != '"') {
        const bool escaped = text.front() == '\\' && text.size() > 1 && (text[1] == '"' || text[1] == '\\');
        if (escaped) {
            text.remove_prefix(1);
        }
        value += text.front();
        text.remove_prefix(1);
    }
    text.remove_prefix(std::min<std::size_t>(1, text.size()));
    return value;
}

/// The value of a parameter of a header such as `form-data; name="file"; filename="a.jsonl"`.
std::optional<std::string> parameter_of(std::string_view header, std::string_view wanted) {
    auto rest = header.substr(std::min(header.find(';'), header.size()));
    while (!rest.empty()) {
        rest.remove_prefix(1);  // the semicolon
        const auto end = std::min(rest.find_first_of("=;"), rest.size());
        const auto name = ascii_lower(trimmed(rest.substr(0, end)));
        rest.remove_prefix(end);
        std::string value;
        if (rest.starts_with('=')) {
            rest = rest.substr(std::min(rest.find_first_not_of(kBlanks, 1), rest.size()));
            if (rest.starts_with('"')) {
                rest.remove_prefix(1);
                value = take_quoted(rest);
                rest = rest.substr(std::min(rest.find(';'), rest.size()));
            } else {
                const auto stop = std::min(rest.find(';'), rest.size());
                value = std::string(trimmed(rest.substr(0, stop)));
                rest.remove_prefix(stop);
            }
        }
        if (name == wanted) {
            return value;
        }
    }
    return std::nullopt;
}

/// Undoes how forms escape quotation marks and line ends (WHATWG, multipart/form-data encoding algorithm).
std::string unescaped(std::string text) {
    for (const auto& [escape, plain] : {std::pair{"%22", "\""}, {"%0D", "\r"}, {"%0A", "\n"}}) {
        for (auto at = text.find(escape); at != std::string::npos; at = text.find(escape, at + 1)) {
            text.replace(at, 3, plain);
        }
    }
    return text;
}

Result<MultipartPart> part_of(std::string_view head) {
    while (!head.empty()) {
        const auto end = std::min(head.find("\r\n"), head.size());
        const auto line = head.substr(0, end);
        head.remove_prefix(std::min(end + 2, head.size()));
        const auto colon = line.find(':');
        if (colon == std::string_view::npos || ascii_lower(trimmed(line.substr(0, colon))) != "content-disposition") {
            continue;
        }
        const auto value = trimmed(line.substr(colon + 1));
        const auto name = parameter_of(value, "name");
        if (ascii_lower(trimmed(value.substr(0, value.find(';')))) != "form-data" || !name) {
            break;
        }
        MultipartPart part;
        part.name = unescaped(*name);
        if (auto filename = parameter_of(value, "filename")) {
            part.filename = unescaped(*std::move(filename));
        }
        return part;
    }
    return invalid_input("a part of the form has no Content-Disposition: form-data with a name");
}

}  // namespace

Result<std::string> multipart_boundary(std::string_view content_type) {
    if (ascii_lower(trimmed(content_type.substr(0, content_type.find(';')))) != "multipart/form-data") {
        return invalid_input("multipart/form-data is expected (curl: -F purpose=fine-tune -F file=@train.jsonl)");
    }
    auto boundary = parameter_of(content_type, "boundary");
    if (!boundary || boundary->empty() || boundary->size() > kMaxBoundary) {
        return invalid_input("multipart/form-data names no boundary of 1 to 70 bytes");
    }
    return *std::move(boundary);
}

MultipartReader::MultipartReader(const std::string& boundary, MultipartHandler& handler)
    : delimiter_("\r\n--" + boundary), handler_(handler), pending_("\r\n") {}

Result<void> MultipartReader::feed(std::string_view bytes) {
    if (place_ == Place::epilogue) {
        return {};
    }
    pending_ += bytes;
    while (true) {
        const auto more = go_on();
        if (!more) {
            return more.error();
        }
        if (!*more) {
            return {};
        }
    }
}

Result<void> MultipartReader::finish() const {
    if (place_ != Place::epilogue) {
        return invalid_input("the form breaks off before its last boundary");
    }
    return {};
}

Result<bool> MultipartReader::go_on() {
    switch (place_) {
        case Place::preamble:
            return read_preamble();
        case Place::behind_boundary:
            return read_behind_boundary();
        case Place::head:
            return read_head();
        case Place::body:
            return read_body();
        case Place::epilogue:
            break;
    }
    pending_.clear();
    return false;
}

bool MultipartReader::read_preamble() {
    const auto found = pending_.find(delimiter_);
    if (found == std::string::npos) {
        pending_.erase(0, pending_.size() - std::min(pending_.size(), delimiter_.size() - 1));
        return false;
    }
    pending_.erase(0, found + delimiter_.size());
    place_ = Place::behind_boundary;
    return true;
}

Result<bool> MultipartReader::read_behind_boundary() {
    if (pending_.starts_with("--")) {
        place_ = Place::epilogue;
        return true;
    }
    const auto line = std::min(pending_.find_first_not_of(kBlanks), pending_.size());
    if (pending_.size() - line < 2 && pending_.size() < kMaxHeadBytes) {
        return false;
    }
    if (pending_.compare(line, 2, "\r\n") != 0) {
        return invalid_input("a boundary of the form is followed by something else than the end of its line");
    }
    if (++parts_ > kMaxParts) {
        return invalid_input("the form has more than " + std::to_string(kMaxParts) + " parts");
    }
    // Keep the end of the boundary line: it ends a head without fields.
    pending_.erase(0, line);
    place_ = Place::head;
    return true;
}

Result<bool> MultipartReader::read_head() {
    const auto end = pending_.find("\r\n\r\n");
    if (end == std::string::npos) {
        if (pending_.size() > kMaxHeadBytes) {
            return invalid_input("the head of a part of the form is larger than " + std::to_string(kMaxHeadBytes) +
                                 " bytes");
        }
        return false;
    }
    const auto part = part_of(std::string_view(pending_).substr(0, end));
    if (!part) {
        return part.error();
    }
    if (const auto begun = handler_.begin(*part); !begun) {
        return begun.error();
    }
    pending_.erase(0, end + 4);
    place_ = Place::body;
    return true;
}

Result<bool> MultipartReader::read_body() {
    const auto found = pending_.find(delimiter_);
    const bool ends = found != std::string::npos;
    const auto size = ends ? found : pending_.size() - std::min(pending_.size(), delimiter_.size() - 1);
    if (size > 0) {
        if (const auto taken = handler_.data(std::string_view(pending_).substr(0, size)); !taken) {
            return taken.error();
        }
    }
    if (!ends) {
        pending_.erase(0, size);
        return false;
    }
    pending_.erase(0, found + delimiter_.size());
    place_ = Place::behind_boundary;
    if (const auto ended = handler_.end(); !ended) {
        return ended.error();
    }
    return true;
}

}  // namespace distilld::http
