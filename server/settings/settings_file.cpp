#include "server/settings/settings_file.hpp"

// Only in this file and header-only, so that no program needs the library.
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <optional>
#include <tuple>

#include "api/kinds/text_checks.hpp"
#include "base/files/files.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

/// The JSON value for a value of TOML. Dates and nested tables become null, which no setting takes.
json::value json_of(const toml::node& node) {
    if (const auto* text = node.as_string()) {
        return json::string(text->get());
    }
    if (const auto* number = node.as_integer()) {
        return number->get();
    }
    if (const auto* number = node.as_floating_point()) {
        return number->get();
    }
    if (const auto* flag = node.as_boolean()) {
        return flag->get();
    }
    if (const auto* list = node.as_array()) {
        json::array values;
        for (const auto& element : *list) {
            values.push_back(json_of(element));
        }
        return values;
    }
    return nullptr;
}

class FileReader {
  public:
    FileReader(std::string name, const SettingsTable& table) : name_(std::move(name)), table_(table) {}

    FileSettings read(std::string_view text) {
        const auto parsed = toml::parse(text);
        if (!parsed) {
            note(parsed.error().source(), "", std::string(parsed.error().description()));
            return take();
        }
        for (const auto& [key, node] : parsed.table()) {
            const auto* section = table_.section(key.str());
            if (section == nullptr) {
                note(key.source(), std::string(key.str()), unknown_in_file(key.str(), node));
            } else if (const auto* members = node.as_table()) {
                read_section(*section, *members);
            } else {
                note(key.source(), std::string(section->name), "must be a table: [" + std::string(section->name) + "]");
            }
        }
        return take();
    }

  private:
    using Position = std::tuple<std::uint32_t, std::uint32_t>;
    template <class T>
    struct At {
        Position position;
        T it;
    };

    void read_section(const SettingsSection& section, const toml::table& members) {
        for (const auto& [key, node] : members) {
            const auto dotted = std::string(section.name) + "." + std::string(key.str());
            if (table_.setting(dotted) != nullptr) {
                values_.push_back({position(node.source()), {dotted, place(node.source()), json_of(node)}});
            } else {
                note(key.source(), dotted, "there is no such setting" + suggestion(section, key.str()));
            }
        }
    }

    /// "; did you mean slots?": a setting of that name in another section, else a similar one in this section.
    [[nodiscard]] std::string suggestion(const SettingsSection& section, std::string_view name) const {
        std::vector<std::string> names;
        for (const auto& setting : section.settings) {
            names.emplace_back(setting.name);
        }
        const auto near = elsewhere(name);
        const auto own = near ? std::nullopt : api::closest(name, names);
        return own ? "; did you mean " + *own + "?" : near ? "; did you mean " + *near + "?" : std::string();
    }

    /// Finds "jobs.slots" for "slots".
    [[nodiscard]] std::optional<std::string> elsewhere(std::string_view name) const {
        for (const auto& section : table_.sections) {
            if (const auto dotted = std::string(section.name) + "." + std::string(name); table_.setting(dotted)) {
                return dotted;
            }
        }
        return std::nullopt;
    }

    /// The message for an unknown key outside the sections.
    [[nodiscard]] std::string unknown_in_file(std::string_view name, const toml::node& node) const {
        std::vector<std::string> names;
        std::string all;
        for (const auto& section : table_.sections) {
            names.emplace_back(section.name);
            all += (all.empty() ? "" : ", ") + names.back();
        }
        if (!node.is_table()) {
            const auto near = elsewhere(name);
            return "settings stand in sections (" + all + ")" + (near ? "; did you mean " + *near + "?" : "");
        }
        const auto near = api::closest(name, names);
        return "there is no such section, but " + all + (near ? "; did you mean " + *near + "?" : "");
    }

    [[nodiscard]] static Position position(const toml::source_region& region) {
        return {region.begin.line, region.begin.column};
    }
    [[nodiscard]] std::string place(const toml::source_region& region) const {
        return name_ + ":" + std::to_string(region.begin.line) + ":" + std::to_string(region.begin.column);
    }
    void note(const toml::source_region& region, std::string name, std::string detail) {
        violations_.push_back({position(region), {place(region), std::move(name), std::move(detail)}});
    }

    /// toml++ sorts tables by name.
    template <class T>
    static std::vector<T> by_line(std::vector<At<T>> all) {
        std::ranges::sort(all, {}, &At<T>::position);
        std::vector<T> sorted;
        for (auto& one : all) {
            sorted.push_back(std::move(one.it));
        }
        return sorted;
    }
    FileSettings take() { return {by_line(std::move(values_)), by_line(std::move(violations_))}; }

    std::string name_;
    const SettingsTable& table_;
    std::vector<At<FileValue>> values_;
    std::vector<At<SettingsViolation>> violations_;
};

}  // namespace

FileSettings read_settings_file(const std::filesystem::path& file, const std::filesystem::path& directory,
                                const SettingsTable& table) {
    const auto text = read_text_file(directory / file, kSettingsSizeLimit);
    if (!text) {
        return {{}, {{"", "", text.error().message}}};
    }
    return FileReader(file.string(), table).read(*text);
}

}  // namespace distilld
