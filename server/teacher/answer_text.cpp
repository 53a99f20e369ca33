#include "server/teacher/answer_text.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/utf8.hpp"

namespace distilld::teacher {
namespace {

/// As many ids as a character or a word can depend on.
constexpr std::size_t kContext = 6;

/// A character has four bytes at most, and each may be a token of its own.
constexpr std::size_t kLongestCharacter = 4;

/// Bytes at the end of `text` that begin a character.
std::size_t begun_character(std::string_view text) {
    for (std::size_t size = std::min(kLongestCharacter - 1, text.size()); size > 0; --size) {
        const std::string_view end = text.substr(text.size() - size);
        const auto lead = static_cast<unsigned char>(end.front());
        if (lead >= 0xC2 && lead <= 0xF4 && utf8_sequence(end) == 0 && utf8_subpart(end) == size) {
            return size;
        }
    }
    return 0;
}

/// Bytes at the end of `text` that begin `stop`.
std::size_t begun(std::string_view text, std::string_view stop) {
    std::size_t size = std::min(text.size(), stop.size() - 1);
    while (!stop.starts_with(text.substr(text.size() - size))) {
        --size;
    }
    return size;
}

}  // namespace

AnswerText::AnswerText(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt, std::vector<std::string> stops,
                       bool skip_special)
    : tokenizer_(tokenizer), stops_(std::move(stops)), skip_special_(skip_special) {
    std::erase_if(stops_, [](const std::string& stop) { return stop.empty() || !is_utf8(stop); });  // no text has them
    for (const std::int32_t id : prompt.last(std::min(prompt.size(), kContext))) {
        if (!skip_special || !tokenizer.is_special(id)) {
            ids_.push_back(id);
        }
    }
    read_ = ids_.size();
}

std::string AnswerText::take_text(bool all) {
    const std::vector<std::int32_t> before(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(read_));
    const std::string known = tokenizer_.decode(before);
    const std::string text = tokenizer_.decode(ids_);
    // Decoders that know no single bytes write U+FFFD for those of a character that is not whole.
    const bool waits = text.ends_with("\xEF\xBF\xBD") && ids_.size() - read_ < kLongestCharacter;
    if ((all || !waits) && text.size() >= known.size()) {
        bytes_ += text.substr(known.size());
        // The next text depends on the ids of this one.
        if (read_ > kContext) {
            ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(read_ - kContext));
        }
        read_ = ids_.size();
    }
    const std::size_t whole = bytes_.size() - (all ? 0 : begun_character(bytes_));
    std::string taken = to_lossy_utf8(std::string_view(bytes_).substr(0, whole));
    bytes_.erase(0, whole);
    return taken;
}

std::string AnswerText::up_to_stop(std::string text, bool all) {
    held_ += text;
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops_) {
        const std::size_t found = held_.find(stop);
        if (found < first) {
            first = found;
            stopped_by_ = stop;
        }
    }
    std::size_t keep = 0;
    if (!stopped_by_ && !all) {
        for (const std::string& stop : stops_) {
            keep = std::max(keep, begun(held_, stop));
        }
    }
    std::string certain = held_.substr(0, std::min(first, held_.size() - keep));
    held_.erase(0, certain.size());
    return certain;
}

std::string AnswerText::add(std::int32_t id) {
    if (stopped_by_ || (skip_special_ && tokenizer_.is_special(id))) {
        return "";
    }
    ids_.push_back(id);
    return up_to_stop(take_text(false), false);
}

std::string AnswerText::finish() {
    return stopped_by_ ? "" : up_to_stop(take_text(true), true);
}

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
    return to_lossy_utf8(tokenizer.decode({id}));
}

}  // namespace distilld::teacher
