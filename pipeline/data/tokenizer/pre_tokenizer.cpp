#include "pipeline/data/tokenizer/pre_tokenizer.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "pipeline/data/tokenizer/component.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

/// What happens to the text that a pattern matches.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct BehaviorName {
    std::string_view name;
    Behavior behavior;
};
constexpr BehaviorName kBehaviors[] = {{"Removed", Behavior::removed},
                                       {"Isolated", Behavior::isolated},
                                       {"MergedWithPrevious", Behavior::merged_with_previous},
                                       {"MergedWithNext", Behavior::merged_with_next},
                                       {"Contiguous", Behavior::contiguous}};

struct Part {
    TextSpan span;
    bool matched = false;
};

/// Splits a text, in order, into matches and the pieces between them.
void part(std::size_t size, const std::vector<TextSpan>& matches, bool invert, std::vector<Part>& parts) {
    parts.clear();
    std::size_t done = 0;
    for (const TextSpan& match : matches) {
        if (done < match.begin) {
            parts.push_back({{done, match.begin}, invert});
        }
        parts.push_back({match, !invert});
        done = match.end;
    }
    if (done < size) {
        parts.push_back({{done, size}, invert});
    }
}

void merge_with_previous(std::vector<Part>& parts) {
    std::size_t kept = 0;
    bool previous_matched = false;
    for (const Part& one : parts) {
        if (one.matched && !previous_matched && kept > 0) {
            parts[kept - 1].span.end = one.span.end;
        } else {
            parts[kept++] = one;
        }
        previous_matched = one.matched;
    }
    parts.resize(kept);
}

void merge_with_next(std::vector<Part>& parts) {
    std::size_t kept = parts.size();
    bool next_matched = false;
    for (std::size_t left = parts.size(); left > 0; --left) {
        const Part one = parts[left - 1];
        if (one.matched && !next_matched && kept < parts.size()) {
            parts[kept].span.begin = one.span.begin;
        } else {
            parts[--kept] = one;
        }
        next_matched = one.matched;
    }
    parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(kept));
}

void merge_equal(std::vector<Part>& parts) {
    std::size_t kept = 0;
    for (const Part& one : parts) {
        if (kept > 0 && parts[kept - 1].matched == one.matched) {
            parts[kept - 1].span.end = one.span.end;
        } else {
            parts[kept++] = one;
        }
    }
    parts.resize(kept);
}

void behave(Behavior behavior, std::vector<Part>& parts) {
    switch (behavior) {
        case Behavior::removed:
            std::erase_if(parts, [](const Part& one) { return one.matched; });
            return;
        case Behavior::isolated:
            return;
        case Behavior::merged_with_previous:
            merge_with_previous(parts);
            return;
        case Behavior::merged_with_next:
            merge_with_next(parts);
            return;
        case Behavior::contiguous:
            merge_equal(parts);
            return;
    }
}

class Split final : public PreTokenizer {
  public:
    Split(std::shared_ptr<const Pattern> pattern, Behavior behavior, bool invert)
        : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

    void apply(Words& words) const override {
        std::vector<TextSpan> cut;
        cut.reserve(words.text.size() / 4 + words.spans.size());
        std::vector<TextSpan> matches;
        std::vector<Part> parts;
        for (const TextSpan& word : words.spans) {
            pattern_->find_all(word.of(words.text), matches);
            part(word.end - word.begin, matches, invert_, parts);
            behave(behavior_, parts);
            for (const Part& one : parts) {
                if (!one.span.empty()) {
                    cut.push_back({word.begin + one.span.begin, word.begin + one.span.end});
                }
            }
        }
        // If the beginning was removed, no other word becomes the first.
        words.at_start = words.at_start && !cut.empty() && cut.front().begin == words.spans.front().begin;
        words.spans = std::move(cut);
    }

  private:
    std::shared_ptr<const Pattern> pattern_;
    Behavior behavior_;
    bool invert_;
};

/// Adds a prefix to each word for which `wants(word, number)` is true.
template <class Wants>
void prefix_words(Words& words, std::string_view prefix, Wants wants) {
    Words made;
    made.at_start = words.at_start;
    made.max_bytes = words.max_bytes;
    const std::uint64_t size = words.text.size() + std::uint64_t{words.spans.size()} * prefix.size();
    check_grown_bytes(size, words.max_bytes);
    made.text.reserve(size);
    made.spans.reserve(words.spans.size());
    for (std::size_t number = 0; number < words.spans.size(); ++number) {
        const std::string_view word = words.spans[number].of(words.text);
        const std::size_t begin = made.text.size();
        if (wants(word, number)) {
            made.text += prefix;
        }
        made.text += word;
        made.spans.push_back({begin, made.text.size()});
    }
    words = std::move(made);
}

/// The model maps the bytes themselves, because it knows the alphabet of its vocabulary.
class ByteLevel final : public PreTokenizer {
  public:
    /// `words` may be null: earlier steps split the text.
    ByteLevel(bool add_prefix_space, std::unique_ptr<PreTokenizer> words)
        : add_prefix_space_(add_prefix_space), words_(std::move(words)) {}

    void apply(Words& words) const override {
        if (add_prefix_space_) {
            prefix_words(words, " ", [](std::string_view word, std::size_t) { return !word.starts_with(' '); });
        }
        if (words_ != nullptr) {
            words_->apply(words);
        }
    }
    bool is_byte_level() const override { return true; }

  private:
    bool add_prefix_space_;
    std::unique_ptr<PreTokenizer> words_;
};

enum class PrependScheme { always, first, never };

class Metaspace final : public PreTokenizer {
  public:
    Metaspace(std::string replacement, PrependScheme scheme, bool split)
        : replacement_(std::move(replacement)),
          scheme_(scheme),
          split_(make_literal(replacement_), Behavior::merged_with_next, false),
          splits_(split) {}

    void apply(Words& words) const override {
        replace_spaces(words);
        if (scheme_ != PrependScheme::never) {
            const bool all = scheme_ == PrependScheme::always;
            prefix_words(words, replacement_, [&](std::string_view word, std::size_t number) {
                return (all || (number == 0 && words.at_start)) && !word.starts_with(replacement_);
            });
        }
        if (splits_) {
            split_.apply(words);
        }
    }

  private:
    void replace_spaces(Words& words) const {
        Words made;
        made.at_start = words.at_start;
        made.max_bytes = words.max_bytes;
        const auto spaces = static_cast<std::uint64_t>(std::ranges::count(words.text, ' '));
        check_grown_bytes(words.text.size() + spaces * replacement_.size(), words.max_bytes);
        made.text.reserve(words.text.size() * 2);
        made.spans.reserve(words.spans.size());
        for (const TextSpan& word : words.spans) {
            const std::size_t begin = made.text.size();
            for (const char c : word.of(words.text)) {
                c == ' ' ? made.text.append(replacement_) : made.text.append(1, c);
            }
            made.spans.push_back({begin, made.text.size()});
        }
        words = std::move(made);
    }

    std::string replacement_;
    PrependScheme scheme_;
    Split split_;
    bool splits_;
};

class Sequence final : public PreTokenizer {
  public:
    explicit Sequence(std::vector<std::unique_ptr<PreTokenizer>> steps) : steps_(std::move(steps)) {}

    void apply(Words& words) const override {
        for (const auto& step : steps_) {
            step->apply(words);
        }
    }
    bool is_byte_level() const override { return !steps_.empty() && steps_.back()->is_byte_level(); }

  private:
    std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

using Made = Result<std::unique_ptr<PreTokenizer>>;

Made made_split(std::string_view expression, Behavior behavior, bool invert = false) {
    Result<std::shared_ptr<const Pattern>> pattern = make_regex(expression);
    if (!pattern) {
        return pattern.error();
    }
    return std::unique_ptr<PreTokenizer>(std::make_unique<Split>(std::move(*pattern), behavior, invert));
}

Result<Behavior> behavior_of(const json::value& component, std::optional<Behavior> when_absent) {
    if (when_absent && member_of(component.get_object(), "behavior") == nullptr) {
        return *when_absent;
    }
    const Result<std::string> name = text_of(component, "behavior");
    if (!name) {
        return name.error();
    }
    for (const BehaviorName& row : kBehaviors) {
        if (row.name == *name) {
            return row.behavior;
        }
    }
    return not_understood("pre_tokenizer", component);
}

Made make_sequence(const json::value& component) {
    auto steps = read_listed("pre_tokenizer", "pretokenizers", make_pre_tokenizer, component);
    if (!steps) {
        return steps.error();
    }
    for (std::size_t next = 1; next < steps->size(); ++next) {
        if ((*steps)[next - 1]->is_byte_level()) {
            return not_understood("what follows ByteLevel in pre_tokenizer:",
                                  component.get_object().at("pretokenizers").get_array()[next]);
        }
    }
    return std::unique_ptr<PreTokenizer>(std::make_unique<Sequence>(std::move(*steps)));
}

// The words of GPT-2 (openai/gpt-2, encoder.py).
constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Made make_byte_level(const json::value& component) {
    const Result<bool> prefix = flag_of(component, "add_prefix_space", true);
    const Result<bool> use_regex = flag_of(component, "use_regex", true);
    if (!prefix || !use_regex) {
        return !prefix ? prefix.error() : use_regex.error();
    }
    std::unique_ptr<PreTokenizer> words;
    if (*use_regex) {
        words = *made_split(kGpt2Words, Behavior::isolated);
    }
    return std::unique_ptr<PreTokenizer>(std::make_unique<ByteLevel>(*prefix, std::move(words)));
}

Made make_split(const json::value& component) {
    Result<std::shared_ptr<const Pattern>> pattern = pattern_of(component);
    if (!pattern) {
        return pattern.error();
    }
    const Result<Behavior> behavior = behavior_of(component, std::nullopt);
    if (!behavior) {
        return behavior.error();
    }
    const Result<bool> invert = flag_of(component, "invert", false);
    if (!invert) {
        return invert.error();
    }
    return std::unique_ptr<PreTokenizer>(std::make_unique<Split>(std::move(*pattern), *behavior, *invert));
}

Made make_digits(const json::value& component) {
    const Result<bool> individual = flag_of(component, "individual_digits", false);
    if (!individual) {
        return individual.error();
    }
    return made_split("\\p{N}", *individual ? Behavior::isolated : Behavior::contiguous);
}

Made make_punctuation(const json::value& component) {
    const Result<Behavior> behavior = behavior_of(component, Behavior::isolated);
    if (!behavior) {
        return behavior.error();
    }
    return made_split(R"([!-/:-@\[-`{-~\p{P}])", *behavior);
}

Made make_metaspace(const json::value& component) {
    const json::object& object = component.get_object();
    Result<std::string> replacement = space_of("pre_tokenizer", component);
    if (!replacement) {
        return replacement.error();
    }
    const Result<bool> add_prefix = flag_of(component, "add_prefix_space", true);
    const Result<bool> split = flag_of(component, "split", true);
    if (!add_prefix || !split) {
        return !add_prefix ? add_prefix.error() : split.error();
    }
    PrependScheme scheme = *add_prefix ? PrependScheme::always : PrependScheme::never;
    if (const json::value* given = member_of(object, "prepend_scheme")) {
        if (*given == "first") {
            scheme = PrependScheme::first;
        } else if (*given == "never") {
            scheme = PrependScheme::never;
        } else if (*given == "always") {
            scheme = PrependScheme::always;
        } else {
            return not_understood("pre_tokenizer", component);
        }
    }
    return std::unique_ptr<PreTokenizer>(std::make_unique<Metaspace>(std::move(*replacement), scheme, *split));
}

// \w+|[^\w\s]+ as in Rust's regex, which counts joiners as letters.
constexpr std::string_view kRustWords = R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)";

constexpr ComponentRow<std::unique_ptr<PreTokenizer>> kPreTokenizers[] = {
    {"Sequence", make_sequence},
    {"ByteLevel", make_byte_level},
    {"Split", make_split},
    {"Digits", make_digits},
    {"Punctuation", make_punctuation},
    {"Whitespace", [](const json::value&) { return made_split(kRustWords, Behavior::removed, true); }},
    {"WhitespaceSplit", [](const json::value&) { return made_split("\\s", Behavior::removed); }},
    {"Metaspace", make_metaspace},
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const json::value& component) {
    return read_component<std::unique_ptr<PreTokenizer>>("pre_tokenizer", kPreTokenizers, component);
}

}  // namespace distilld
