#include "pipeline/data/tokenizer/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "base/utf8.hpp"
#include "pipeline/data/tokenizer/regex_dialect.hpp"

// \p{White_Space} is new in this version.
static_assert(PCRE2_MAJOR > 10 || PCRE2_MINOR >= 40, "PCRE2 10.40 or newer is needed");

namespace distilld {

namespace {

struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
    void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

/// Maximum steps from one place of a text. A document may be one long run of spaces, which takes many steps; the
/// expressions in use take some per byte. More steps mean that an expression backtracks excessively.
std::uint32_t max_steps(std::size_t text_bytes) {
    constexpr std::uint64_t kAlways = 10'000'000;
    constexpr std::uint64_t kForEachByte = 64;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(kAlways + kForEachByte * text_bytes, std::numeric_limits<std::uint32_t>::max()));
}
constexpr std::uint32_t kMaxHeapKib = 512U << 10U;

std::string message_of(int code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(code, text.data(), text.size());
    return reinterpret_cast<const char*>(text.data());
}

class Regex final : public Pattern {
  public:
    explicit Regex(std::unique_ptr<pcre2_code, Free> code) : code_(std::move(code)) {}

    void find_all(std::string_view text, std::vector<TextSpan>& matches) const override {
        matches.clear();
        const std::unique_ptr<pcre2_match_data, Free> data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
        const std::unique_ptr<pcre2_match_context, Free> limits(pcre2_match_context_create(nullptr));
        if (data == nullptr || limits == nullptr) {
            throw std::bad_alloc();
        }
        pcre2_set_match_limit(limits.get(), max_steps(text.size()));
        pcre2_set_heap_limit(limits.get(), kMaxHeapKib);
        std::size_t last_end = std::string_view::npos;
        for (std::size_t at = 0; at <= text.size();) {
            if (!next(text, at, *data, limits.get())) {
                return;
            }
            const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
            const TextSpan match{found[0], found[1]};
            if (match.empty()) {
                if (match.end != last_end) {
                    matches.push_back(match);
                }
                const std::size_t size = match.end < text.size() ? utf8_sequence(text.substr(match.end)) : 1;
                at = match.end + (size == 0 ? 1 : size);
            } else {
                matches.push_back(match);
                at = match.end;
            }
            last_end = match.end;
        }
    }

  private:
    bool next(std::string_view text, std::size_t at, pcre2_match_data& data, pcre2_match_context* limits) const {
        const auto* bytes = reinterpret_cast<PCRE2_SPTR>(text.data());
        int found = pcre2_match(code_.get(), bytes, text.size(), at, PCRE2_NO_UTF_CHECK, &data, limits);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter uses the heap
            found = pcre2_match(code_.get(), bytes, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, &data, limits);
        }
        if (found == PCRE2_ERROR_NOMATCH) {
            return false;
        }
        if (found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_HEAPLIMIT) {
            throw ErrorException(invalid_input(
                "a regular expression of the tokenizer's tokenizer.json needs too many steps for a text of " +
                std::to_string(text.size()) + " bytes (" + message_of(found) + "): simplify it"));
        }
        if (found < 0) {
            throw std::runtime_error("a tokenizer's regular expression: " + message_of(found));
        }
        return true;
    }

    std::unique_ptr<pcre2_code, Free> code_;
};

class Literal final : public Pattern {
  public:
    explicit Literal(std::string literal) : literal_(std::move(literal)) {}

    void find_all(std::string_view text, std::vector<TextSpan>& matches) const override {
        matches.clear();
        for (std::size_t at = text.find(literal_); at != std::string_view::npos;
             at = text.find(literal_, at + literal_.size())) {
            matches.push_back({at, at + literal_.size()});
        }
    }

  private:
    std::string literal_;
};

}  // namespace

Result<std::shared_ptr<const Pattern>> make_regex(std::string_view expression) {
    const Result<std::string> translated = to_pcre2(expression);
    if (!translated) {
        return translated.error();
    }
    const std::unique_ptr<pcre2_compile_context, Free> context(pcre2_compile_context_create(nullptr));
    if (context == nullptr) {
        throw std::bad_alloc();
    }
    pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
    int code = 0;
    PCRE2_SIZE offset = 0;
    std::unique_ptr<pcre2_code, Free> compiled(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()), translated->size(),
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &code, &offset, context.get()));
    if (compiled == nullptr) {
        return invalid_input("the regular expression \"" + std::string(expression) +
                             "\" is not understood: " + message_of(code));
    }
    // Without JIT support for this machine, matching is only slower.
    static_cast<void>(pcre2_jit_compile(compiled.get(), PCRE2_JIT_COMPLETE));
    return std::shared_ptr<const Pattern>(std::make_shared<Regex>(std::move(compiled)));
}

std::shared_ptr<const Pattern> make_literal(std::string literal) {
    return std::make_shared<Literal>(std::move(literal));
}

std::string replace_all(std::string_view text, const Pattern& pattern, std::string_view content,
                        std::size_t max_bytes) {
    std::vector<TextSpan> matches;
    pattern.find_all(text, matches);
    std::uint64_t size = text.size() + std::uint64_t{matches.size()} * content.size();
    for (const TextSpan& match : matches) {
        size -= match.end - match.begin;
    }
    check_grown_bytes(size, max_bytes);
    std::string made;
    made.reserve(size);
    std::size_t done = 0;
    for (const TextSpan& match : matches) {
        made += text.substr(done, match.begin - done);
        made += content;
        done = match.end;
    }
    made += text.substr(done);
    return made;
}

}  // namespace distilld
