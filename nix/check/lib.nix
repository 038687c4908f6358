# As much of nixpkgs' lib as the lists of settings use, for where there is no other: what an option's type would refuse is
# not noticed with it, its name is.
{
  mkOption = option: option // { _type = "option"; };
  types =
    let
      type = _: { };
    in
    {
      bool = { };
      str = { };
      path = { };
      ints = {
        positive = { };
        between = _: type;
      };
      nullOr = type;
      listOf = type;
      attrsOf = type;
      enum = type;
      strMatching = type;
    };
}
