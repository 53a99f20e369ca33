#pragma once

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value_from.hpp>
#include <boost/json/value_to.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <type_traits>
#include <utility>

#include "api/kinds/value_kinds.hpp"
#include "base/enum_names.hpp"

/// Fields of a document, each a member of a Root or of a section: `make_integer(&TrainingSpec::micro_batches, {1,
/// 65536})` is a field of a JobSpec, `make_integer(&JobsSettings::slots, {0, 1024})` one of ServiceSettings.
namespace distilld::api {

/// The Root of a section, and the section in a Root: null if absent. A struct without a specialization is a Root
/// itself.
template <class Section>
struct SectionOf {
    using Root = Section;
    static auto* in(auto& root) { return &root; }
};

/// A section that is a member of its Root and may be optional.
template <auto member>
struct SectionAt;
template <class R, class T, T R::* member>
struct SectionAt<member> {
    using Root = R;
    static auto* in(auto& root) {
        if constexpr (requires { (root.*member).has_value(); }) {
            return root.*member ? &*(root.*member) : nullptr;
        } else {
            return &(root.*member);
        }
    }
};

/// A kind of value, and the member that holds it.
template <class Root>
class FieldKind {
  public:
    using Get = std::function<boost::json::value(const Root&)>;         ///< null: section or value is absent
    using Set = std::function<void(Root&, const boost::json::value&)>;  ///< the section must exist

    FieldKind(ValueKindPtr kind, Get get, Set set, boost::json::value initial)
        : kind_(std::move(kind)), get_(std::move(get)), set_(std::move(set)), initial_(std::move(initial)) {}

    const ValueKind* operator->() const { return kind_.get(); }

    /// Sets the value. If it is invalid, returns false, reports the reason, and the member keeps its value.
    bool read(const boost::json::value& value, Root& root, const FieldReport& report) const {
        const auto kept = kind_->read(value, report);
        if (kept) {
            set_(root, *kept);
        }
        return kept.has_value();
    }
    /// The value; nullopt if the section is absent, or the member means "none" (an empty text, list or optional).
    [[nodiscard]] std::optional<boost::json::value> write(const Root& root) const { return written(get_(root)); }
    /// The result of write() for a default-constructed section.
    [[nodiscard]] std::optional<boost::json::value> initial() const { return written(initial_); }
    /// The value in the form for people, with "none" as an empty text or list.
    [[nodiscard]] boost::json::value show(const Root& root) const { return kind_->show(get_(root)); }

    /// The texts of the member that are files or folders; none if its section is absent.
    [[nodiscard]] std::vector<std::string> paths(const Root& root) const {
        const auto kept = kind_->path_use() ? get_(root) : boost::json::value();
        if (kept.is_array()) {
            return boost::json::value_to<std::vector<std::string>>(kept);
        }
        return kept.is_string() ? std::vector{std::string(kept.get_string())} : std::vector<std::string>();
    }
    /// Replaces each of these paths that is not empty with the result of `change`.
    void change_paths(Root& root, const std::function<std::string(const std::string&)>& change) const {
        auto kept = kind_->path_use() ? get_(root) : boost::json::value();
        const auto change_one = [&change](boost::json::value& text) {
            if (!text.get_string().empty()) {
                text = boost::json::string(change(std::string(text.get_string())));
            }
        };
        if (auto* list = kept.if_array()) {
            std::ranges::for_each(*list, change_one);
        } else if (kept.is_string()) {
            change_one(kept);
        } else {
            return;
        }
        set_(root, kept);
    }

  private:
    static bool is_none(const boost::json::value& kept) {
        return kept.is_null() || (kept.is_string() && kept.get_string().empty()) ||
               (kept.is_array() && kept.get_array().empty());
    }
    [[nodiscard]] std::optional<boost::json::value> written(boost::json::value kept) const {
        // If the field has another default, the empty text is a normal value.
        if (kept.is_null() || (is_none(kept) && is_none(initial_))) {
            return std::nullopt;
        }
        return kind_->write(std::move(kept));
    }

    ValueKindPtr kind_;
    Get get_;
    Set set_;
    boost::json::value initial_;
};

/// `to` converts a section to the kept value; `from` puts a kept value into a section.
template <class Section, class To, class From>
[[nodiscard]] auto make_field(ValueKindPtr kind, To to, From from) {
    using Root = typename SectionOf<Section>::Root;
    const auto get = [to](const Root& root) -> boost::json::value {
        const auto* section = SectionOf<Section>::in(root);
        return section == nullptr ? boost::json::value() : boost::json::value(to(*section));
    };
    const auto set = [from](Root& root, const boost::json::value& kept) { from(*SectionOf<Section>::in(root), kept); };
    return FieldKind<Root>(std::move(kind), get, set, to(Section{}));
}

/// The value of a member, in the form that kinds keep.
template <class T>
boost::json::value kept_of(const T& member) {
    if constexpr (requires { member.has_value(); }) {
        return member ? kept_of(*member) : boost::json::value();
    } else if constexpr (requires { member.count(); }) {
        return static_cast<std::uint64_t>(member.count());
    } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
        return boost::json::string(member.string());
    } else if constexpr (std::is_unsigned_v<T> && !std::is_same_v<T, bool>) {
        return static_cast<std::uint64_t>(member);
    } else {
        return boost::json::value_from(member);
    }
}

template <class T>
void keep(T& member, const boost::json::value& kept) {
    if constexpr (requires { member.has_value(); }) {
        keep(member.emplace(), kept);
    } else if constexpr (requires { member.count(); }) {
        member = T(kept.to_number<std::int64_t>());
    } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
        member = std::string(kept.get_string());
    } else {
        member = boost::json::value_to<T>(kept);
    }
}

/// A field that keeps the member's own value.
template <class Section, class T>
[[nodiscard]] auto make_field(ValueKindPtr kind, T Section::* member) {
    return make_field<Section>(
        std::move(kind), [member](const Section& section) { return kept_of(section.*member); },
        [member](Section& section, const boost::json::value& kept) { keep(section.*member, kept); });
}

/// A text without control characters.
template <class Section>
[[nodiscard]] auto make_text(std::string Section::* member, TextRange range = {}) {
    return make_field(text_kind(range), member);
}

/// A list of texts.
template <class Section>
[[nodiscard]] auto make_texts(std::vector<std::string> Section::* member, ListRange range) {
    return make_field(list_kind(range), member);
}

/// A file or folder; `what` names it, and `use` says how the job uses it. The caller makes relative paths absolute.
template <class Section, class T>
[[nodiscard]] auto make_path(T Section::* member, PathUse use, const char* what, bool may_be_empty = false) {
    return make_field(text_kind({.may_be_empty = may_be_empty, .use = use, .what = what}), member);
}

/// One file, or a list of up to `max_count`; a single file is written without a list.
template <class Section>
[[nodiscard]] auto make_paths(std::vector<std::string> Section::* member, PathUse use, const char* what,
                              std::size_t max_count) {
    return make_field(list_kind({.text = {.use = use, .what = what}, .max_count = max_count, .one_alone = true}),
                      member);
}

/// 1 to `max_count` http or https URLs, each once.
template <class Section>
[[nodiscard]] auto make_urls(std::vector<std::string> Section::* member, std::size_t max_count) {
    return make_field(
        list_kind({.text = {.form = &kUrlForm},
                   .max_count = max_count,
                   .min_count = 1,
                   .if_too_few = "must not be empty: give at least one URL, such as http://127.0.0.1:8600",
                   .unique = true}),
        member);
}

/// One http or https URL, or an empty text for none.
template <class Section>
[[nodiscard]] auto make_url(std::string Section::* member) {
    return make_field(text_kind({.may_be_empty = true, .form = &kUrlForm}), member);
}

template <class Section, class T>
[[nodiscard]] auto make_integer(T Section::* member, IntegerRange range) {
    return make_field(integer_kind(range), member);
}

/// "auto" sets `automatic` and does not change the number.
template <class Section, class T>
[[nodiscard]] auto make_integer_or_auto(T Section::* number, bool Section::* automatic, IntegerRange range) {
    const auto to = [=](const Section& section) {
        return section.*automatic ? boost::json::value("auto") : kept_of(section.*number);
    };
    const auto from = [=](Section& section, const boost::json::value& kept) {
        section.*automatic = kept.is_string();
        if (!kept.is_string()) {
            keep(section.*number, kept);
        }
    };
    return make_field<Section>(integer_or_auto_kind(range), to, from);
}

template <class Section, class T>
[[nodiscard]] auto make_number(T Section::* member, NumberRange range) {
    return make_field(number_kind(range), member);
}

template <class Section>
[[nodiscard]] auto make_size(std::uint64_t Section::* member, IntegerRange range) {
    return make_field(size_kind(range), member);
}

template <class Section>
[[nodiscard]] auto make_duration(std::chrono::milliseconds Section::* member, std::chrono::milliseconds min,
                                 std::chrono::milliseconds max) {
    return make_field(duration_kind(min, max), member);
}

/// The member holds seconds.
template <class Section, class T>
[[nodiscard]] auto make_seconds(T Section::* member, NumberRange range) {
    return make_field(seconds_kind(range), member);
}

template <class Section>
[[nodiscard]] auto make_boolean(bool Section::* member) {
    return make_field(boolean_kind(), member);
}

/// One value of an enumeration, by its name table, which must outlive the kind. A default without a name is "none".
template <class Section, class Enum, class Names>
[[nodiscard]] auto make_choice(Enum Section::* member, const Names& names, ValueKindPtr kind = nullptr) {
    const auto to = [member, &names](const Section& section) {
        const char* name = name_of(names, section.*member);
        return boost::json::value(value_of(names, name) ? name : "");
    };
    const auto from = [member, &names](Section& section, const boost::json::value& kept) {
        section.*member = value_of(names, kept.get_string()).value();
    };
    return make_field<Section>(kind ? std::move(kind) : choice_kind(names_of(names)), to, from);
}

/// The same, with true and false standing for two of the values.
template <class Section, class Enum, class Names>
[[nodiscard]] auto make_choice_or_boolean(Enum Section::* member, const Names& names, Enum when_true, Enum when_false) {
    return make_choice(member, names,
                       choice_or_boolean_kind(names_of(names), name_of(names, when_true), name_of(names, when_false)));
}

}  // namespace distilld::api
