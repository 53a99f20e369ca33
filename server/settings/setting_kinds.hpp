#pragma once

#include <boost/json/value.hpp>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/enum_names.hpp"
#include "server/settings/service_settings.hpp"

/// Kinds of settings: what values one takes, how they are read, written and described. A row of a section makes one
/// from the member that holds the value: `make_integer_setting(&ServiceSettings::jobs, &JobsSettings::slots, 1, 1024)`.
/// Values come and go as JSON, which has what TOML has for them. Immutable, any thread.
namespace distilld {

/// How a value is given on a command line, and completed there.
enum class SettingShape { word, words, boolean, file, folder };

class SettingKind {
  public:
    virtual ~SettingKind() = default;

    /// Puts the value in; relative paths start at `base`. Otherwise the member stays as it is, and what is wanted
    /// comes back: "must be a whole number from 1 to 1024". The value is not in it, for it may be a secret.
    [[nodiscard]] virtual std::optional<std::string> read(const boost::json::value& value,
                                                          const std::filesystem::path& base,
                                                          ServiceSettings& settings) const = 0;
    /// The value that the words behind a flag, or the text of an environment variable, stand for. Whether it is a good
    /// one, read() says.
    [[nodiscard]] virtual boost::json::value value_of(const std::vector<std::string>& words) const = 0;
    [[nodiscard]] virtual boost::json::value write(const ServiceSettings& settings) const = 0;
    /// The values in a few words: "1 to 1024".
    [[nodiscard]] virtual std::string values() const = 0;
    /// What stands for the value in the help of a flag: "N", "DIR", "{debug,info}".
    [[nodiscard]] virtual std::string type_name() const = 0;
    [[nodiscard]] virtual SettingShape shape() const { return SettingShape::word; }
};

using SettingKindPtr = std::shared_ptr<const SettingKind>;

/// A member as a kind sees it: a Value, whatever type the member has.
template <class Value>
struct SettingMember {
    std::function<Value(const ServiceSettings&)> get;
    std::function<void(ServiceSettings&, const Value&)> set;
};

template <class Value, class Section, class T>
[[nodiscard]] SettingMember<Value> setting_member(Section ServiceSettings::* section, T Section::* member) {
    return {[=](const ServiceSettings& settings) { return static_cast<Value>(settings.*section.*member); },
            [=](ServiceSettings& settings, const Value& value) { settings.*section.*member = static_cast<T>(value); }};
}

/// Says what is wrong with a text ("must be ADDRESS:PORT"); nothing: it is good.
using TextCheck = std::optional<std::string> (*)(const std::string& text);

struct TextSettingRange {
    bool may_be_empty = false;  ///< "" stands for "none"
    TextCheck check = nullptr;  ///< of the texts that are not empty
    const char* values = "text";
    const char* type_name = "TEXT";
};

inline constexpr std::size_t kMaxSettingTexts = 1000;

[[nodiscard]] SettingKindPtr make_text_setting(SettingMember<std::string> member, TextSettingRange range);
[[nodiscard]] SettingKindPtr make_texts_setting(SettingMember<std::vector<std::string>> member, TextSettingRange range);
[[nodiscard]] SettingKindPtr make_path_setting(SettingMember<std::filesystem::path> member, SettingShape shape);
[[nodiscard]] SettingKindPtr make_boolean_setting(SettingMember<bool> member);
[[nodiscard]] SettingKindPtr make_integer_setting(SettingMember<std::uint64_t> member, std::uint64_t min,
                                                  std::uint64_t max);
[[nodiscard]] SettingKindPtr make_size_setting(SettingMember<std::uint64_t> member, std::uint64_t min,
                                               std::uint64_t max);
[[nodiscard]] SettingKindPtr make_duration_setting(SettingMember<std::chrono::milliseconds> member,
                                                   std::chrono::milliseconds min, std::chrono::milliseconds max);
[[nodiscard]] SettingKindPtr make_choice_setting(SettingMember<std::string> member, std::vector<std::string> names);

/// A text without control characters.
template <class Section>
[[nodiscard]] SettingKindPtr make_text_setting(Section ServiceSettings::* section, std::string Section::* member,
                                               TextSettingRange range = {}) {
    return make_text_setting(setting_member<std::string>(section, member), range);
}

/// A list of them, each once; on a command line the flag may be repeated, or the texts stand with commas between.
template <class Section>
[[nodiscard]] SettingKindPtr make_texts_setting(Section ServiceSettings::* section,
                                                std::vector<std::string> Section::* member,
                                                TextSettingRange range = {}) {
    return make_texts_setting(setting_member<std::vector<std::string>>(section, member), range);
}

/// A file or a folder, made absolute; "" = none.
template <class Section>
[[nodiscard]] SettingKindPtr make_file_setting(Section ServiceSettings::* section,
                                               std::filesystem::path Section::* member) {
    return make_path_setting(setting_member<std::filesystem::path>(section, member), SettingShape::file);
}
template <class Section>
[[nodiscard]] SettingKindPtr make_folder_setting(Section ServiceSettings::* section,
                                                 std::filesystem::path Section::* member) {
    return make_path_setting(setting_member<std::filesystem::path>(section, member), SettingShape::folder);
}

template <class Section>
[[nodiscard]] SettingKindPtr make_boolean_setting(Section ServiceSettings::* section, bool Section::* member) {
    return make_boolean_setting(setting_member<bool>(section, member));
}

template <class Section, std::unsigned_integral T>
[[nodiscard]] SettingKindPtr make_integer_setting(Section ServiceSettings::* section, T Section::* member,
                                                  std::uint64_t min, std::uint64_t max) {
    return make_integer_setting(setting_member<std::uint64_t>(section, member), min, max);
}

/// Bytes: a whole number, or a text with a unit ("8MiB").
template <class Section>
[[nodiscard]] SettingKindPtr make_size_setting(Section ServiceSettings::* section, std::uint64_t Section::* member,
                                               std::uint64_t min, std::uint64_t max) {
    return make_size_setting(setting_member<std::uint64_t>(section, member), min, max);
}

/// A number of seconds, or a text with a unit ("500ms", "5m").
template <class Section>
[[nodiscard]] SettingKindPtr make_duration_setting(Section ServiceSettings::* section,
                                                   std::chrono::milliseconds Section::* member,
                                                   std::chrono::milliseconds min, std::chrono::milliseconds max) {
    return make_duration_setting(setting_member<std::chrono::milliseconds>(section, member), min, max);
}

/// One of the values of an enumeration, by its name table, which must outlive the kind.
template <class Section, class Enum, class Names>
[[nodiscard]] SettingKindPtr make_choice_setting(Section ServiceSettings::* section, Enum Section::* member,
                                                 const Names& names) {
    const auto get = [=, &names](const ServiceSettings& settings) {
        return std::string(name_of(names, settings.*section.*member));
    };
    const auto set = [=, &names](ServiceSettings& settings, const std::string& text) {
        settings.*section.*member = distilld::value_of(names, text).value();
    };
    return make_choice_setting(SettingMember<std::string>{get, set}, names_of(names));
}

}  // namespace distilld
