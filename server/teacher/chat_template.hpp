#pragma once

#include <boost/asio/awaitable.hpp>
#include <string>

#include "base/error.hpp"
#include "server/teacher/completion_request.hpp"
#include "server/teacher/served_text.hpp"

namespace distilld::teacher {

/// The chat as the text that the model was trained on. jinja2 renders the template, as in transformers, in a process
/// that begins and ends with the call (chat_renderer.py): a template is a program from somebody else. invalid_input:
/// there is no template, or it refuses these messages; internal: it cannot be rendered here.
[[nodiscard]] boost::asio::awaitable<Result<std::string>> render_chat(const ServedText& text,
                                                                      const CompletionRequest& request);

}  // namespace distilld::teacher
