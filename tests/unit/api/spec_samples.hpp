#pragma once

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <optional>
#include <ostream>
#include <regex>
#include <stdexcept>
#include <string>

#include "api/spec_fields.hpp"

namespace distilld::test {

/// A good value of the field that is not its default, made from the schema of its kind; nothing where only one value is
/// supported.
inline std::optional<boost::json::value> other_value(const api::SpecField& field) {
    if (field.pointer == "/teacher/targets") {
        return "hidden";  // others have to fit top_k
    }
    if (field.pointer == "/training/losses") {
        return boost::json::array{boost::json::object{
            {"kind", "mae"}, {"output", "y"}, {"target", "teacher.y"}, {"weight", 2.0}, {"temperature", 1.0}}};
    }
    if (field.pointer == "/placement/options") {
        return boost::json::object{{"account", "lab"}};
    }
    auto schema = field.kind->schema();
    const auto initial = field.kind.initial();
    if (schema.contains("const")) {
        return std::nullopt;
    }
    if (const auto* forms = schema.if_contains("oneOf")) {
        if (forms->at(1).as_object().contains("pattern")) {
            schema = boost::json::object(forms->at(0).as_object());  // a text with a unit is written as a number
        }
    }
    if (const auto* forms = schema.if_contains("oneOf")) {
        const auto& first = forms->at(0).at("type").as_string();
        if (first == "boolean") {
            return forms->at(1).at("enum").as_array().back();
        }
        if (first == "string") {
            return boost::json::array{"one.jsonl", "two.jsonl"};
        }
        return initial == boost::json::value("auto") ? forms->at(0).at("maximum") : "auto";
    }
    const auto type = schema.at("type").as_string();
    if (const auto* names = schema.if_contains("enum")) {
        const auto& all = names->as_array();
        return *std::ranges::find_if(all, [&](const auto& name) { return name != initial; });
    }
    if (type == "boolean") {
        return !initial.value().as_bool();
    }
    if (type == "integer") {
        return schema.at("maximum");
    }
    if (type == "number") {
        const auto* max = schema.if_contains("maximum");
        return (max != nullptr ? *max : schema.at("exclusiveMaximum")).to_number<double>() / 2;
    }
    if (type == "array") {
        return boost::json::array{"http://other:1/x", "https://another:2"};
    }
    if (type == "object") {
        return boost::json::object{{"hidden_size", 8}};
    }
    const auto* pattern = schema.if_contains("pattern");
    for (const char* text : {"Other_Name", "cuda:1", "DISTILLD_KEY_OTHER", "http://other:1/x"}) {
        if (pattern == nullptr || std::regex_match(text, std::regex(pattern->as_string().c_str()))) {
            return text;
        }
    }
    throw std::logic_error("no sample has the pattern of " + std::string(field.pointer));
}

/// A job spec with one field more than JobSpec has, as a table may describe it.
struct GrownSpec : JobSpec {
    double label_smoothing = 0.125;
    std::string word_list;
};

}  // namespace distilld::test

namespace distilld::api {

/// Names the field in the messages of parametrised tests.
inline void PrintTo(const SpecField& field, std::ostream* out) {
    *out << field.pointer;
}

template <>
struct SectionOf<test::GrownSpec> {
    using Root = JobSpec;
    static auto* in(JobSpec& spec) { return static_cast<test::GrownSpec*>(&spec); }
    static auto* in(const JobSpec& spec) { return static_cast<const test::GrownSpec*>(&spec); }
};

}  // namespace distilld::api

namespace distilld::test {

/// The table of the fields with two made-up rows, added as CONTRIBUTING.md says. Only for a GrownSpec.
inline api::SpecTable grown_table() {
    auto table = api::spec_table();
    table.fields.push_back({.pointer = "/training/label_smoothing",
                            .kind = api::make_number(&GrownSpec::label_smoothing, {.max = 0.5}),
                            .decides_weights = api::DecidesWeights::yes,
                            .help = "made up for a test"});
    table.fields.push_back({.pointer = "/dataset/word_list",
                            .kind = api::make_path(&GrownSpec::word_list, api::PathUse::reads, "text file", true),
                            .decides_weights = api::DecidesWeights::no,
                            .help = "made up, too"});
    return table;
}

}  // namespace distilld::test
