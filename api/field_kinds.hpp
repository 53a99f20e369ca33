#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_from.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "api/violation.hpp"
#include "base/enum_names.hpp"
#include "pipeline/core/job_spec.hpp"

/// Kinds of spec fields: what values a field takes, how they are read, written and described. A row of the table
/// (spec_fields.cpp) makes one from the member that holds the value: `integer(&TrainingSpec::micro_batches, {1,
/// 65536})`.
namespace distilld::api {

/// Notes what is wrong with the value of one field.
struct FieldReport {
    std::string_view pointer;
    std::vector<Violation>& violations;

    void violate(std::string code, std::string detail) const;
    void wrong_type(std::string_view wanted, const boost::json::value& got) const;
};

/// How a program that is given the value as words has to understand them.
enum class FieldShape { text, boolean, list_of_texts, json };

/// What a job does with a file or folder that its spec names: which other jobs may use it meanwhile follows from it
/// (server/jobs/path_claims.hpp).
enum class PathUse {
    reads,
    shares,  ///< writes beside other jobs that have agreed on how, or reads: the store of a teacher's answers
    writes,  ///< and nobody else does
};

class FieldKind {
  public:
    virtual ~FieldKind() = default;

    /// Puts the value into the spec, whose section must be there. False when it is not good; the reason is reported and
    /// the member keeps its value.
    virtual bool read(const boost::json::value& value, JobSpec& spec, const FieldReport& report) const = 0;

    /// The value; nothing when the section is absent, or the member says "none" (an empty text or optional).
    [[nodiscard]] virtual std::optional<boost::json::value> write(const JobSpec& spec) const = 0;

    /// What write() gives for a default-constructed section.
    [[nodiscard]] virtual std::optional<boost::json::value> initial() const = 0;

    /// JSON schema (2020-12, as OpenAPI 3.1 has it) of the value, without its default.
    [[nodiscard]] virtual boost::json::object schema() const = 0;

    /// The values in a few words of Markdown: "1–65536".
    [[nodiscard]] virtual std::string values() const = 0;

    [[nodiscard]] virtual FieldShape shape() const { return FieldShape::json; }

    /// The texts of the member that are files or folders; none where its section is absent.
    [[nodiscard]] virtual std::vector<std::string*> paths(JobSpec& /*spec*/) const { return {}; }
    /// What is done with them.
    [[nodiscard]] virtual PathUse path_use() const { return PathUse::reads; }
};

using FieldKindPtr = std::shared_ptr<const FieldKind>;

/// Finds a section of the spec by its type; a null pointer where the section is absent.
template <class Section>
struct SectionOf;
template <>
struct SectionOf<JobSpec> {
    static auto* in(auto& spec) { return &spec; }
};
template <>
struct SectionOf<StudentSpec> {
    static auto* in(auto& spec) { return &spec.student; }
};
template <>
struct SectionOf<TeacherSpec> {
    static auto* in(auto& spec) { return spec.teacher ? &*spec.teacher : nullptr; }
};
template <>
struct SectionOf<DatasetSpec> {
    static auto* in(auto& spec) { return &spec.dataset; }
};
template <>
struct SectionOf<TrainingSpec> {
    static auto* in(auto& spec) { return &spec.training; }
};
template <>
struct SectionOf<EvalSpec> {
    static auto* in(auto& spec) { return &spec.eval; }
};
template <>
struct SectionOf<LoraSpec> {
    static auto* in(auto& spec) { return spec.student.lora ? &*spec.student.lora : nullptr; }
};
template <>
struct SectionOf<CheckpointSpec> {
    static auto* in(auto& spec) { return &spec.checkpoint; }
};

template <>
struct SectionOf<MetricsSpec> {
    static auto* in(auto& spec) { return &spec.metrics; }
};

/// A member of a section as a kind sees it: a Value, whatever type the member has.
template <class Value>
struct Member {
    std::function<std::optional<Value>(const JobSpec&)> get;  ///< nothing: section or value is absent
    std::function<void(JobSpec&, const Value&)> set;          ///< the section is there
    std::optional<Value> initial;                             ///< of a default-constructed section
};

/// `to` makes a Value (or an optional one) of the section, `from` puts one in.
template <class Value, class Section, class To, class From>
[[nodiscard]] Member<Value> make_member(To to, From from) {
    const auto get = [to](const JobSpec& spec) -> std::optional<Value> {
        const auto* section = SectionOf<Section>::in(spec);
        return section == nullptr ? std::nullopt : std::optional<Value>(to(*section));
    };
    const auto set = [from](JobSpec& spec, const Value& value) { from(*SectionOf<Section>::in(spec), value); };
    return {get, set, to(Section{})};
}

template <class Value, class Section, class T>
[[nodiscard]] Member<Value> member_of(T Section::* member) {
    return make_member<Value, Section>(
        [member](const Section& section) -> std::optional<Value> {
            if constexpr (requires { (section.*member).has_value(); }) {
                return section.*member ? std::optional<Value>(static_cast<Value>(*(section.*member))) : std::nullopt;
            } else {
                return static_cast<Value>(section.*member);
            }
        },
        [member](Section& section, const Value& value) {
            if constexpr (requires { (section.*member).has_value(); }) {
                section.*member = static_cast<typename T::value_type>(value);
            } else {
                section.*member = static_cast<T>(value);
            }
        });
}

inline constexpr std::size_t kMaxPathBytes = 4096;

/// A pattern that a text must have. `pattern` is a regular expression of ECMAScript for the whole text.
struct TextForm {
    const char* pattern;
    const char* values;     ///< in words, for the documentation
    const char* complaint;  ///< what is said of a text without it; the text is not echoed, as it may be a secret
};

struct TextRange {
    std::size_t max_bytes = kMaxPathBytes;
    bool may_be_empty = false;       ///< "" stands for "none"
    const TextForm* form = nullptr;  ///< of the texts that are not empty
    bool may_break_lines = false;    ///< line feeds and tabs are no control characters
};

struct IntegerRange {
    std::uint64_t min = 0;
    std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
};

enum class Ends { closed, open_min, open_max };  ///< which end of a range is outside of it

/// The one value of a range that is supported so far.
struct Supported {
    double value;
    const char* meaning;
};

struct NumberRange {
    double min = 0;
    double max = 1;
    Ends ends = Ends::closed;
    std::optional<Supported> only = std::nullopt;
};

/// A whole number, or "auto".
struct IntegerOrAuto {
    bool automatic = false;
    std::uint64_t number = 0;
};

inline void tag_invoke(const boost::json::value_from_tag&, boost::json::value& written, const IntegerOrAuto& value) {
    if (value.automatic) {
        written = "auto";
    } else {
        written = value.number;
    }
}

[[nodiscard]] FieldKindPtr make_text(Member<std::string> member, TextRange range);
[[nodiscard]] FieldKindPtr make_path(Member<std::string> member, std::function<std::string*(JobSpec&)> text,
                                     PathUse use, const char* what, bool may_be_empty);
[[nodiscard]] FieldKindPtr make_paths(Member<std::vector<std::string>> member,
                                      std::function<std::vector<std::string>*(JobSpec&)> texts, PathUse use,
                                      const char* what, std::size_t max_count);
[[nodiscard]] FieldKindPtr make_texts(Member<std::vector<std::string>> member, TextRange range, std::size_t max_count);
[[nodiscard]] FieldKindPtr make_urls(Member<std::vector<std::string>> member, std::size_t max_count);
[[nodiscard]] FieldKindPtr make_url(Member<std::string> member);
[[nodiscard]] FieldKindPtr make_integer(Member<std::uint64_t> member, IntegerRange range);
[[nodiscard]] FieldKindPtr make_integer_or_auto(Member<IntegerOrAuto> member, IntegerRange range);
[[nodiscard]] FieldKindPtr make_number(Member<double> member, NumberRange range);
[[nodiscard]] FieldKindPtr make_boolean(Member<bool> member);
[[nodiscard]] FieldKindPtr make_choice(Member<std::string> member, std::vector<std::string> names);
[[nodiscard]] FieldKindPtr make_choice_or_boolean(Member<std::string> member, std::vector<std::string> names,
                                                  std::string when_true, std::string when_false);
[[nodiscard]] FieldKindPtr make_object(Member<std::string> member);

/// A text without control characters.
template <class Section>
[[nodiscard]] FieldKindPtr make_text(std::string Section::* member, TextRange range = {}) {
    return make_text(member_of<std::string>(member), range);
}

/// A file or folder; `what` says which, and `use` what becomes of it. Relative ones are made absolute when a job is
/// taken in.
template <class Section>
[[nodiscard]] FieldKindPtr make_path(std::string Section::* member, PathUse use, const char* what,
                                     bool may_be_empty = false) {
    const auto place = [member](JobSpec& spec) -> std::string* {
        auto* section = SectionOf<Section>::in(spec);
        return section == nullptr ? nullptr : &(section->*member);
    };
    return make_path(member_of<std::string>(member), place, use, what, may_be_empty);
}

/// One file, or a list of up to `max_count`; written as it is likeliest to have been read.
template <class Section>
[[nodiscard]] FieldKindPtr make_paths(std::vector<std::string> Section::* member, PathUse use, const char* what,
                                      std::size_t max_count) {
    const auto place = [member](JobSpec& spec) -> std::vector<std::string>* {
        auto* section = SectionOf<Section>::in(spec);
        return section == nullptr ? nullptr : &(section->*member);
    };
    return make_paths(member_of<std::vector<std::string>>(member), place, use, what, max_count);
}

/// Up to `max_count` texts, each in `range`.
template <class Section>
[[nodiscard]] FieldKindPtr make_texts(std::vector<std::string> Section::* member, TextRange range,
                                      std::size_t max_count) {
    return make_texts(member_of<std::vector<std::string>>(member), range, max_count);
}

/// 1 to `max_count` http or https URLs, each once, without user name, password and fragment.
template <class Section>
[[nodiscard]] FieldKindPtr make_urls(std::vector<std::string> Section::* member, std::size_t max_count) {
    return make_urls(member_of<std::vector<std::string>>(member), max_count);
}

/// One such URL, or an empty text for none.
template <class Section>
[[nodiscard]] FieldKindPtr make_url(std::string Section::* member) {
    return make_url(member_of<std::string>(member));
}

template <class Section, class T>
[[nodiscard]] FieldKindPtr make_integer(T Section::* member, IntegerRange range) {
    return make_integer(member_of<std::uint64_t>(member), range);
}

/// "auto" sets `automatic` and leaves the number alone.
template <class Section, class T>
[[nodiscard]] FieldKindPtr make_integer_or_auto(T Section::* number, bool Section::* automatic, IntegerRange range) {
    const auto to = [=](const Section& section) { return IntegerOrAuto{section.*automatic, section.*number}; };
    const auto from = [=](Section& section, const IntegerOrAuto& value) {
        section.*automatic = value.automatic;
        if (!value.automatic) {
            section.*number = static_cast<T>(value.number);
        }
    };
    return make_integer_or_auto(make_member<IntegerOrAuto, Section>(to, from), range);
}

/// "auto" searches up to the end of the range.
template <class Section>
[[nodiscard]] FieldKindPtr make_integer_or_auto(ConcurrencySpec Section::* member, IntegerRange range) {
    const auto to = [=](const Section& section) {
        return IntegerOrAuto{(section.*member).automatic, (section.*member).limit};
    };
    const auto from = [=](Section& section, const IntegerOrAuto& value) {
        section.*member = {value.automatic, static_cast<std::uint32_t>(value.automatic ? range.max : value.number)};
    };
    return make_integer_or_auto(make_member<IntegerOrAuto, Section>(to, from), range);
}

template <class Section, class T>
[[nodiscard]] FieldKindPtr make_number(T Section::* member, NumberRange range) {
    return make_number(member_of<double>(member), range);
}

template <class Section>
[[nodiscard]] FieldKindPtr make_boolean(bool Section::* member) {
    return make_boolean(member_of<bool>(member));
}

/// One of the values of an enumeration, by its name table, which must outlive the kind.
template <class Section, class Enum, class Names>
[[nodiscard]] FieldKindPtr make_choice(Enum Section::* member, const Names& names) {
    const auto to = [member, &names](const Section& section) { return std::string(name_of(names, section.*member)); };
    const auto from = [member, &names](Section& section, const std::string& text) {
        section.*member = value_of(names, text).value();
    };
    return make_choice(make_member<std::string, Section>(to, from), names_of(names));
}

/// The same, where true and false stand for two of the values.
template <class Section, class Enum, class Names>
[[nodiscard]] FieldKindPtr make_choice_or_boolean(Enum Section::* member, const Names& names, Enum when_true,
                                                  Enum when_false) {
    const auto to = [member, &names](const Section& section) { return std::string(name_of(names, section.*member)); };
    const auto from = [member, &names](Section& section, const std::string& text) {
        section.*member = value_of(names, text).value();
    };
    return make_choice_or_boolean(make_member<std::string, Section>(to, from), names_of(names),
                                  name_of(names, when_true), name_of(names, when_false));
}

/// One of a few texts, where there is no enumeration of them here.
template <class Section>
[[nodiscard]] FieldKindPtr make_choice(std::string Section::* member, std::vector<std::string> names) {
    return make_choice(member_of<std::string>(member), std::move(names));
}

/// Any JSON object, kept as its text.
template <class Section>
[[nodiscard]] FieldKindPtr make_object(std::optional<std::string> Section::* member) {
    return make_object(member_of<std::string>(member));
}

}  // namespace distilld::api
