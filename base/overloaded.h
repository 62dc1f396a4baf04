// Overloaded{lambdas...}: one visitor for std::visit.
#pragma once

namespace tandem {

template <typename... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overloaded(Ts...) -> Overloaded<Ts...>;

}  // namespace tandem
