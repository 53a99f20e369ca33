#include "api/spec_explain.hpp"

#include <algorithm>
#include <vector>

#include "api/kinds/text_checks.hpp"
#include "api/spec_docs.hpp"
#include "base/join.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

/// Drops the marks of Markdown.
std::string plain(std::string_view markdown) {
    std::string text(markdown);
    std::erase(text, '`');
    return text;
}

std::string resuming(const DecidesWeights& decides) {
    if (decides == DecidesWeights::yes) {
        return "must be the same";
    }
    if (decides == DecidesWeights::first_weights) {
        return "not used: the weights come from the checkpoint";
    }
    if (decides == DecidesWeights::last_bits) {
        return "may change; the last bits of the weights will";
    }
    return "may change";
}

std::string explained(const SpecField& field) {
    std::string text = dotted_name(field.pointer) + "\n";
    const auto add = [&text](std::string_view what, const std::string& value) {
        text += "  " + std::string(what) + std::string(11 - what.size(), ' ') + plain(value) + "\n";
    };
    add("meaning", std::string(field.help));
    add("values", field.kind->values());
    add("default", default_text(field));
    add("on resume", resuming(field.decides_weights));
    return text;
}

/// The fields of a section, or of the document, with the names aligned.
std::string listed(const SpecTable& table, std::string_view section) {
    const auto fields = table.fields_of(section);
    std::size_t width = 0;
    for (const auto* field : fields) {
        width = std::max(width, field->pointer.size() - 1);
    }
    std::string text;
    for (const auto* field : fields) {
        const auto name = dotted_name(field->pointer);
        text += name + std::string(width - name.size() + 2, ' ') + plain(field->help) + "\n";
    }
    return text;
}

/// The fields with this name, in any section.
std::vector<const SpecField*> fields_called(const SpecTable& table, std::string_view name) {
    std::vector<const SpecField*> found;
    for (const auto& field : table.fields) {
        if (field.name() == name) {
            found.push_back(&field);
        }
    }
    return found;
}

Error unknown(const SpecTable& table, std::string_view name) {
    std::vector<std::string> names;
    for (const auto& field : table.fields) {
        names.emplace_back(field.name());
        names.push_back(dotted_name(field.pointer));
    }
    if (const auto* meant = table.known_as(name.substr(name.find_last_of("./") + 1))) {
        return invalid_input("there is no field " + quote(name) + "; did you mean " + dotted_name(meant->pointer) +
                             "?");
    }
    const auto near = closest(pointer_of(name).substr(1), names);
    const auto as_given = near ? near : closest(name, names);
    return invalid_input("there is no field " + quote(name) +
                         (as_given ? "; did you mean " + *as_given + "?" : "; without a name, all are listed"));
}

std::string all_listed(const SpecTable& table) {
    std::string text = listed(table, "");
    for (const auto& section : table.sections) {
        if (section.members_as.empty()) {
            text += "\n" + listed(table, section.pointer);
        } else {
            text += "\n" + dotted_name(section.pointer) + "  " + plain(section.help) + "\n";
        }
    }
    return text;
}

constexpr std::size_t kWidth = 100;

/// Wraps text into lines that begin with `start`.
std::string wrapped(const std::string& text, const std::string& start) {
    std::string out;
    std::string line = start;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        if (line.size() > start.size() && line.size() + end - at >= kWidth) {
            out += line + "\n";
            line = start;
        }
        line += (line.size() > start.size() ? " " : "") + text.substr(at, end - at);
        at = end + 1;
    }
    return out + line + "\n";
}

/// The members of one object, active and commented out. Each ends with a comma, so that it can be switched on or off.
class ObjectText {
  public:
    explicit ObjectText(std::string indent) : indent_(std::move(indent)) {}

    void comment(const std::string& text) { text_ += wrapped(plain(text), indent_ + "// "); }
    /// Adds an active member. `text` begins with the member's name and has no comma at its end.
    void stands(const std::string& text) {
        text_ += indent_ + text + ",\n";
        empty_ = false;
    }
    void left_out(const std::string& text) { text_ += indent_ + "// " + text + ",\n"; }
    /// Adds lines that are already commented out.
    void block(const std::string& text) { text_ += text; }
    /// No member is active.
    [[nodiscard]] bool empty() const { return empty_; }
    [[nodiscard]] const std::string& text() const { return text_; }

  private:
    std::string indent_;
    std::string text_;
    bool empty_ = true;
};

/// Stands for a value without a default: JSON of the field's type, but null for a number, since any number could be
/// mistaken for an intended one.
boost::json::value placeholder(boost::json::object schema) {
    if (const auto* choices = schema.if_contains("oneOf")) {
        schema = boost::json::object(choices->at(0).as_object());
    }
    const auto* type = schema.if_contains("type");
    if (type == nullptr || *type == "string") {
        return "…";
    }
    if (*type == "array") {
        const bool of_texts = schema.at("items").at("type") == "string";
        return of_texts ? boost::json::array{"…"} : boost::json::array();
    }
    return *type == "object" ? boost::json::value(boost::json::object()) : boost::json::value(nullptr);
}

void add_field(const SpecField& field, const std::map<std::string, boost::json::value>& values, ObjectText& object) {
    const auto given = values.find(std::string(field.pointer));
    object.comment(std::string(field.help) + " (" + field.kind->values() + ")");
    const auto initial = field.kind.initial();
    const auto name = "\"" + std::string(field.name()) + "\": ";
    if (given != values.end()) {
        object.stands(name + to_text(given->second));
    } else {
        object.left_out(name + (initial ? to_text(*initial) : to_text(placeholder(field.kind->schema()))));
    }
}

/// Puts "// " at the beginning of all lines.
std::string commented_out(const std::string& text, const std::string& indent) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const std::string line = text.substr(at, end - at);
        out += indent + "// " + line.substr(std::min(line.size(), indent.size())) + "\n";
        at = end + 1;
    }
    return out;
}

const std::string kIndent = "  ";

/// The members of a section; "" means the document.
ObjectText object_text(const SpecTable& table, std::string_view pointer,
                       const std::map<std::string, boost::json::value>& values, const std::string& indent) {
    ObjectText object(indent);
    for (const auto member : table.members_of(pointer)) {
        if (const auto* field = table.field(member)) {
            add_field(*field, values, object);
            continue;
        }
        const auto& section = table.section(member);
        if (!section.members_as.empty()) {
            continue;
        }
        const auto inner = object_text(table, member, values, indent + kIndent);
        const auto whole = "\"" + std::string(section.name()) + "\": {\n" + inner.text() + indent + "}";
        if (inner.empty()) {
            object.block(commented_out(indent + whole + ",\n", indent));
        } else {
            object.stands(whole);
        }
    }
    return object;
}

}  // namespace

Result<std::string> explain(const SpecTable& table, std::string_view name) {
    if (name.empty()) {
        return all_listed(table);
    }
    const auto pointer = pointer_of(name);
    if (const auto* field = table.field(pointer)) {
        return explained(*field);
    }
    if (const auto fields = table.fields_of(pointer); !fields.empty()) {
        return listed(table, pointer);
    }
    for (const auto& section : table.sections) {
        if (section.name() == name && section.members_as.empty()) {
            return listed(table, section.pointer);
        }
    }
    const auto called = fields_called(table, name);
    if (called.empty()) {
        return unknown(table, name);
    }
    return joined(called, "\n", [](const auto* field) { return explained(*field); });
}

std::string starting_spec(const SpecTable& table, const std::map<std::string, boost::json::value>& values) {
    return "// A job spec. Lines that are commented out show defaults or optional fields; `distilld spec explain "
           "FIELD` "
           "says\n"
           "// more of a field, `distilld spec check FILE` what is wrong with the spec. Comments and commas behind the "
           "last\n// member may stay.\n{\n" +
           object_text(table, "", values, kIndent).text() + "}\n";
}

}  // namespace distilld::api
