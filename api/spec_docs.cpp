#include "api/spec_docs.hpp"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include "api/section_fields.hpp"
#include "base/join.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

json::object field_schema(const SpecField& field) {
    auto schema = field.kind->schema();
    const auto initial = field.required.empty() ? field.kind.initial() : std::nullopt;
    std::string description(field.help);
    if (initial && !field.default_depends) {
        schema["default"] = *initial;
    }
    if (!field.default_note.empty()) {
        description += initial ? "; default " + default_text(field) : "; " + default_text(field);
    }
    schema["description"] = description;
    return schema;
}

json::object object_schema(const SpecTable& table, std::string_view section) {
    json::array required;
    for (const auto* field : table.fields_of(section)) {
        if (!field->required.empty() && field->needed_by != NeededBy::tokens && field->needed_by != NeededBy::data) {
            required.emplace_back(field->name());
        }
    }
    json::object schema{{"type", "object"}, {"additionalProperties", false}};
    if (!required.empty()) {
        schema["required"] = std::move(required);
    }
    return schema;
}

/// The schema of a section whose members have the form of another section.
json::object members_schema(const SpecSection& section, const std::string& root) {
    return {{"type", "object"},
            {"minProperties", 1},
            {"maxProperties", kMaxTeachers},
            {"propertyNames", {{"pattern", std::string("^") + kTeacherNameForm.pattern + "$"}}},
            {"additionalProperties", {{"$ref", root + "/properties" + std::string(section.members_as)}}},
            {"description", section.help}};
}

json::object properties_schema(const SpecTable& table, std::string_view section, const std::string& root);

json::object section_schema(const SpecTable& table, const SpecSection& section, const std::string& root) {
    if (!section.members_as.empty()) {
        return members_schema(section, root);
    }
    auto schema = object_schema(table, section.pointer);
    if (!section.help.empty()) {
        schema["description"] = section.help;
    }
    schema["properties"] = properties_schema(table, section.pointer, root);
    return schema;
}

json::object properties_schema(const SpecTable& table, std::string_view section, const std::string& root) {
    json::object properties;
    for (const auto member : table.members_of(section)) {
        const auto name = member.substr(section.size() + 1);
        const auto* field = table.field(member);
        properties[name] = field != nullptr ? field_schema(*field) : section_schema(table, table.section(member), root);
    }
    return properties;
}

/// Adds that a job has data of its own, or rollouts.
void add_needs_of_data(const SpecTable& table, json::object& schema) {
    json::array names;
    json::object sections;
    for (const SpecSection& section : table.sections) {
        if (section.required.empty() || section.needed_by != NeededBy::data) {
            continue;
        }
        json::array fields;
        for (const auto* field : table.fields_of(section.pointer)) {
            if (!field->required.empty() && field->needed_by == NeededBy::data) {
                fields.emplace_back(field->name());
            }
        }
        names.emplace_back(section.name());
        sections[section.name()] = json::object{{"required", std::move(fields)}};
    }
    if (!names.empty()) {
        const json::object data{{"required", std::move(names)}, {"properties", std::move(sections)}};
        schema["anyOf"] = json::array{data, json::object{{"required", json::array{"rollout"}}}};
    }
}

/// Adds what each kind of job requires: a generate job needs no student.
void add_needs_by_kind(const SpecTable& table, json::object& schema) {
    json::array always;
    json::array of_training;
    json::object ways_of;
    for (const auto pointer : table.members_of("")) {
        const auto name = pointer.substr(1);
        const auto* field = table.field(pointer);
        const auto* section = field == nullptr ? &table.section(pointer) : nullptr;
        if ((field != nullptr ? field->required : section->required).empty()) {
            continue;
        }
        const auto by = field != nullptr ? field->needed_by : section->needed_by;
        if (by == NeededBy::data) {
            continue;
        }
        (by == NeededBy::all ? always : of_training).emplace_back(name);
        json::array ways;
        for (const auto way : section != nullptr ? section->exactly_one : std::vector<std::string_view>()) {
            ways.push_back(json::object{{"required", json::array{way}}});
        }
        if (!ways.empty()) {
            ways_of[name] = json::object{{"oneOf", std::move(ways)}};
        }
    }
    schema.erase("required");  // object_schema() knows no kinds
    if (!always.empty()) {
        schema["required"] = std::move(always);
    }
    add_needs_of_data(table, schema);
    const auto generate = json::object{{"kind", json::object{{"const", to_string(JobKind::generate)}}}};
    schema["if"] = json::object{{"properties", generate}, {"required", json::array{"kind"}}};
    schema["then"] = json::object{{"required", json::array{"teacher"}}};
    schema["else"] = json::object{{"required", std::move(of_training)}, {"properties", std::move(ways_of)}};
}

/// Text in a form that YAML reads as a string.
std::string yaml_text(std::string_view text) {
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    const auto plain = [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '_'; };
    constexpr std::string_view kReserved[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
    if (!text.empty() && letter(text.front()) && std::ranges::all_of(text, plain) &&
        std::ranges::find(kReserved, text) == std::end(kReserved)) {
        return std::string(text);
    }
    std::string quoted = "'";
    for (const char c : text) {
        quoted += c == '\'' ? "''" : std::string(1, c);
    }
    return quoted + "'";
}

/// The value on one line.
std::string yaml_flow(const json::value& value) {
    if (const auto* text = value.if_string()) {
        return yaml_text(*text);
    }
    if (value.is_double()) {
        // YAML 1.1 reads 1e-8 as a text.
        auto text = to_text(value);
        if (const auto exponent = text.find('e'); exponent < text.find('.')) {
            text.insert(exponent, ".0");
        }
        return text;
    }
    const auto* array = value.if_array();
    const auto* object = value.if_object();
    if (array == nullptr && object == nullptr) {
        return to_text(value);
    }
    if (array != nullptr) {
        return "[" + joined(*array, ", ", yaml_flow) + "]";
    }
    const auto text_of = [](const auto& member) { return yaml_text(member.key()) + ": " + yaml_flow(member.value()); };
    return "{ " + joined(*object, ", ", text_of) + " }";
}

/// Writes the schema of an object: one line per member, properties on lines of their own.
void write_object(const json::object& schema, const std::string& indent, std::string& out) {
    for (const auto& member : schema) {
        if (member.key() != "properties") {
            out += indent + std::string(member.key()) + ": " + yaml_flow(member.value()) + "\n";
            continue;
        }
        out += indent + "properties:\n";
        for (const auto& property : member.value().get_object()) {
            const auto& own = property.value().get_object();
            out += indent + "  " + std::string(property.key()) + ":";
            if (own.contains("properties")) {
                out += "\n";
                write_object(own, indent + "    ", out);
            } else {
                out += " " + yaml_flow(own) + "\n";
            }
        }
    }
}

}  // namespace

std::string default_text(const SpecField& field) {
    if (!field.required.empty()) {
        return "required";
    }
    const auto initial = field.kind.initial();
    if (!initial) {
        return field.default_note.empty() ? "none" : std::string(field.default_note);
    }
    auto text = to_text(*initial);
    if (initial->is_string()) {
        text = "`" + text + "`";
    }
    return field.default_note.empty() ? text : text + " " + std::string(field.default_note);
}

std::string dotted_name(std::string_view pointer) {
    std::string name(pointer.substr(1));
    std::ranges::replace(name, '/', '.');
    return name;
}

std::string pointer_of(std::string_view name) {
    std::string pointer(name);
    // A name with slashes is a pointer, and its parts may contain dots.
    if (pointer.find('/') == std::string::npos) {
        std::ranges::replace(pointer, '.', '/');
    }
    return pointer.starts_with("/") ? pointer : "/" + pointer;
}

std::string markdown_table(const SpecTable& table, std::string_view section) {
    std::string text = "| field | value | default | meaning |\n| --- | --- | --- | --- |\n";
    for (const auto* field : table.fields_of(section)) {
        text += "| `" + dotted_name(field->pointer) + "` | " + field->kind->values() + " | " + default_text(*field) +
                " | " + std::string(field->help) + " |\n";
    }
    return text;
}

json::object job_spec_schema(const SpecTable& table, const std::string& root) {
    auto schema = object_schema(table, "");
    add_needs_by_kind(table, schema);
    schema["properties"] = properties_schema(table, "", root);
    return schema;
}

std::string job_spec_schema_yaml(const SpecTable& table) {
    std::string text = "    JobSpec:\n";
    write_object(job_spec_schema(table), "      ", text);
    return text;
}

Result<void> replace_between(std::string& text, const std::string& begin, const std::string& end,
                             const std::string& body) {
    const auto first = text.find(begin + "\n");
    const auto last = first == std::string::npos ? first : text.find(end + "\n", first);
    if (last == std::string::npos) {
        return invalid_input("the lines '" + begin + "' and '" + end + "' are missing");
    }
    const auto start = first + begin.size() + 1;
    text.replace(start, last - start, body);
    return {};
}

Result<std::string> with_field_tables(std::string markdown, const SpecTable& table) {
    std::vector<std::string_view> sections{""};
    for (const auto& section : table.sections) {
        if (section.members_as.empty()) {
            sections.push_back(section.pointer);
        }
    }
    for (const auto section : sections) {
        const auto name = section.empty() ? "document" : std::string(section.substr(1));
        const auto replaced = replace_between(markdown, "<!-- fields of " + name + " -->", "<!-- end of fields -->",
                                              markdown_table(table, section));
        if (!replaced) {
            return replaced.error();
        }
    }
    return markdown;
}

Result<std::string> with_job_spec_schema(std::string yaml, const SpecTable& table) {
    const auto replaced = replace_between(yaml, "    # JobSpec, by distilld-spec-docs", "    # end of JobSpec",
                                          job_spec_schema_yaml(table));
    if (!replaced) {
        return replaced.error();
    }
    return yaml;
}

}  // namespace distilld::api
