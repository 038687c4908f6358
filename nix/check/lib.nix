# A minimal replacement for nixpkgs' lib, for the lists of settings. It checks the names of options, not their types.
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
