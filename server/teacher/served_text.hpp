#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld::teacher {

/// What a served model's folder says about text.
struct ServedText {
    std::unique_ptr<Tokenizer> tokenizer;      ///< null: the model is served token ids
    boost::json::object config;                ///< tokenizer_config.json; empty without it
    std::optional<std::string> chat_template;  ///< Jinja: chat_template.jinja, or in tokenizer_config.json
    std::vector<std::string> warnings;         ///< why something is missing
};

/// Reads the files; one that is damaged is a warning.
[[nodiscard]] ServedText load_served_text(const std::filesystem::path& folder);

}  // namespace distilld::teacher
