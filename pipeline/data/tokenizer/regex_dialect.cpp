#include "pipeline/data/tokenizer/regex_dialect.hpp"

namespace distilld {

namespace {

// Unlike Unicode's properties (UTS #18) in Oniguruma, PCRE2's \s includes U+180E, and its \w has fewer characters.
constexpr std::string_view kSpace = "\\p{White_Space}";
constexpr std::string_view kNoSpace = "\\P{White_Space}";
constexpr std::string_view kWordProperties = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

class Translation {
  public:
    explicit Translation(std::string_view expression) : rest_(expression) {}

    Result<std::string> whole() {
        while (!rest_.empty()) {
            Result<void> done;
            if (rest_.front() == '\\') {
                done = escape();
            } else if (in_class_) {
                done = inside_class();
            } else {
                done = outside_class();
            }
            if (!done) {
                return done.error();
            }
        }
        return std::move(made_);
    }

  private:
    void take(std::size_t size) {
        made_ += rest_.substr(0, size);
        rest_.remove_prefix(size);
    }

    void put(std::size_t size, std::string_view instead) {
        made_ += instead;
        rest_.remove_prefix(size);
    }

    static Error no_counterpart(std::string_view what) {
        return invalid_input("\"" + std::string(what) + "\" in a regular expression is not understood");
    }

    Result<void> escape() {
        if (rest_.size() < 2) {
            return no_counterpart(rest_);
        }
        switch (rest_[1]) {
            case 's':
                put(2, kSpace);
                return {};
            case 'S':
                put(2, kNoSpace);
                return {};
            case 'w':
                put(2, in_class_ ? std::string(kWordProperties) : "[" + std::string(kWordProperties) + "]");
                return {};
            case 'W':
                if (in_class_) {
                    return no_counterpart("[\\W]");
                }
                put(2, "[^" + std::string(kWordProperties) + "]");
                return {};
            case 'h':  // a hexadecimal digit
                put(2, in_class_ ? "0-9a-fA-F" : "[0-9a-fA-F]");
                return {};
            case 'b':
            case 'B':
            case 'H':
            case 'M':
            case 'C':
            case 'c':
            case 'g':
            case 'k':
            case 'K':
            case 'y':
            case 'Y':
            case 'O':
            case 'R':
            case 'X':
                return no_counterpart(rest_.substr(0, 2));
            case 'u':
                return code_point();
            default:
                take(2);
                return {};
        }
    }

    /// \uHHHH
    Result<void> code_point() {
        const std::string_view digits = rest_.substr(2, 4);
        if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
            return no_counterpart(rest_.substr(0, 2));
        }
        put(6, "\\x{" + std::string(digits) + "}");
        return {};
    }

    Result<void> inside_class() {
        if (rest_.starts_with("[:")) {
            const std::size_t end = rest_.find(":]");
            if (end == std::string_view::npos) {
                return no_counterpart("[:");
            }
            take(end + 2);
            return {};
        }
        if (rest_.front() == '[') {
            return no_counterpart("[ inside [ ]");
        }
        if (rest_.starts_with("&&")) {
            return no_counterpart("&& inside [ ]");
        }
        in_class_ = rest_.front() != ']';
        take(1);
        return {};
    }

    Result<void> outside_class() {
        if (rest_.front() == '[') {
            in_class_ = true;
            take(rest_.starts_with("[^") ? 2 : 1);
            if (rest_.starts_with("]")) {
                return no_counterpart("[]");
            }
            return {};
        }
        if (rest_.starts_with("(?")) {
            return group();
        }
        take(1);
        return {};
    }

    /// (?:, (?=, (?!, (?<=, (?<!, (?>, (?i: and (?i) mean the same in both; (?m) does not.
    Result<void> group() {
        for (const std::string_view same : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:"}) {
            if (rest_.starts_with(same)) {
                take(same.size());
                return {};
            }
        }
        return no_counterpart(rest_.substr(0, 4));
    }

    std::string_view rest_;
    std::string made_;
    bool in_class_ = false;
};

}  // namespace

Result<std::string> to_pcre2(std::string_view expression) {
    return Translation(expression).whole();
}

}  // namespace distilld
