#pragma once

#include <string>

namespace distilld::teacher {

/// The text of chat_renderer.py.
[[nodiscard]] const std::string& chat_renderer();

}  // namespace distilld::teacher
